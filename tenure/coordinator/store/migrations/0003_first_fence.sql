-- For which offers a worker's silence is a proof: those that are newer than its present agent.

ALTER TABLE worker ADD COLUMN first_fence INTEGER NOT NULL DEFAULT 0;
-- An agent that said hello before this was written down may have had a predecessor.
UPDATE worker SET first_fence = (SELECT fence FROM world WHERE id = 1);
