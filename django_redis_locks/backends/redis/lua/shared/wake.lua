-- Notifies the process that has waited longest that the lock may be free. Channels without subscriber are skipped. Without
-- the right to publish nothing is notified: the waiters poll then.
local function wake(lock, waiters)
  while true do
    local first = redis.pcall('ZPOPMIN', waiters)[1]
    if not first then return false end
    local channel, number = string.match(first, '^(.*) (%x+)$')
    local heard = redis.pcall('PUBLISH', channel, number .. ' ' .. lock)
    if type(heard) == 'table' then return false end
    if heard > 0 then return true end
  end
end
