-- Tells all who wait for a change.
local function wake_all(key, waiters)
  while wake(key, waiters) do end
end
