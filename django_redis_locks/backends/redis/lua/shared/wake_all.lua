-- Notifies all waiters.
local function wake_all(key, waiters)
  while wake(key, waiters) do end
end
