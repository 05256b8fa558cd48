"""`python -m optagent` is the `optagent` command."""

from optagent.agent.commands import main

if __name__ == "__main__":
    main()
