-- Notifies the process that has waited longest that the lock may be free. Channels without a subscriber are skipped. If the
-- user may not publish, no process is notified, and the waiters poll.
local function wake(lock, waiters)
  while true do
    local first, score = unpack(redis.pcall('ZPOPMIN', waiters))
    if score == '0' then first = redis.pcall('ZPOPMIN', waiters)[1] end -- after a mark: see grant_after_lease
    if not first then return false end
    local channel, number = string.match(first, '^(%S+) (%x+)')
    local receivers = redis.pcall('$PUBLISH', channel, number .. ' ' .. lock)
    if type(receivers) == 'table' then return false end
    if receivers > 0 then return true end
  end
end
