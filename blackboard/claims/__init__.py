"""Who works, and what has happened already: leases with fencing, and effects."""
