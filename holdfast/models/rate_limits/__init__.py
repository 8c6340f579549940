"""Rate limits of routes: what a provider allows in a minute, and how calls wait for it."""
