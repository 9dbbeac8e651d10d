"""Topics and standbys as the ends of a flow."""
