-- Campaigns: what submissions may use, and what each task has reserved and used. The sums are the triggers' work.

-- name: create_campaign
-- Make a campaign known; it starts OPEN.
INSERT INTO campaign (campaign, state, most_tasks, most_attempt_ms, most_cost, capabilities, devices, people,
                      starts_at_ms, ends_at_ms, note, created_at_ms, created_by)
VALUES (:campaign, 'OPEN', :most_tasks, :most_attempt_ms, :most_cost, :capabilities, :devices, :people,
        :starts_at_ms, :ends_at_ms, :note, :now_ms, :by);

-- name: campaign
-- All that decisions about a campaign need.
SELECT campaign, state, most_tasks, most_attempt_ms, most_cost, capabilities, devices, people, starts_at_ms,
       ends_at_ms, reserved_tasks, reserved_ms, reserved_cost, used_tasks, used_ms, used_cost
FROM campaign WHERE campaign = ?;

-- name: close_campaign
-- OPEN to CLOSED.
UPDATE campaign SET state = 'CLOSED', closed_at_ms = ?, closed_by = ? WHERE campaign = ? AND state = 'OPEN';

-- name: insert_charge
-- Reserve for one task. The sums follow, and the campaign's checks refuse more than its budget.
INSERT INTO charge (task_id, campaign, principal, capability, state, cost, attempt_ms, reserved_ms)
VALUES (?, ?, ?, ?, 'RESERVED', ?, ?, ?);

-- name: charge
-- What a task holds of its campaign.
SELECT campaign, state, cost, attempt_ms, reserved_ms, used_ms FROM charge WHERE task_id = ?;

-- name: list_campaigns
-- Campaigns with their sums, newest first. Costs are in thousandths.
SELECT campaign, state, most_tasks, reserved_tasks, used_tasks, most_attempt_ms, reserved_ms AS reserved_attempt_ms,
       used_ms AS used_attempt_ms, most_cost, reserved_cost, used_cost, capabilities, devices, people, starts_at_ms,
       ends_at_ms, note, created_at_ms, created_by, closed_at_ms, closed_by
FROM campaign
WHERE (:campaign IS NULL OR campaign = :campaign) AND (:state IS NULL OR state = :state)
ORDER BY created_at_ms DESC, campaign LIMIT :limit;

-- name: list_usage
-- Who has used how much of one campaign, for which kinds of work; read from its index alone.
SELECT principal, capability, COUNT(*) AS tasks, SUM(state = 'RESERVED') AS reserved_tasks,
       SUM(state = 'USED') AS used_tasks, SUM(state = 'RELEASED') AS released_tasks,
       SUM(cost * (state = 'RESERVED')) AS reserved_cost, SUM(cost * (state = 'USED')) AS used_cost,
       SUM(used_ms) AS used_attempt_ms
FROM charge WHERE campaign = :campaign
GROUP BY principal, capability ORDER BY principal, capability LIMIT :limit;
