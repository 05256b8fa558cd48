"""Is the output still right? What a server is asked before it is measured, and the rules its answers are held to. Pure."""
