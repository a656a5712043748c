"""What HTTP servers of the flight share: who may call, where they listen, bodies, faults, their life."""
