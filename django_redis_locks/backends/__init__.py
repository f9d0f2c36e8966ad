"""The backends, one per folder. A backend executes commands on a store, and doesn't depend on the primitives."""
