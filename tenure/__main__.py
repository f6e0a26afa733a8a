"""`python -m tenure` is the same as `tenure`."""

from tenure.cli.main import main

if __name__ == "__main__":
    main()
