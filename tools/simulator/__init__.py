"""A simulated SGLang deployment: a process that takes SGLang's flags, prints its log and serves its endpoints.

Its times come from a cost model, in virtual time. Everything it hands out says that it is simulated.

Start it with `python -m optagent.tools.simulator <SGLang flags>`; `world.lay_out` prepares the world it looks at.
The server process imports the standard library only, so that a launch takes a fraction of a second.
"""
