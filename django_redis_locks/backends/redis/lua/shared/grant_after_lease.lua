-- Grants a free lock with waiters, because a lease has ended, to the first of them that is alive. Returns the value of the lock;
-- nil or false if it is still free, as when the caller's address or place is the first.
-- The address that was granted the lock stays in the wait queue as a mark, with the score 0, until the lock is granted again. If
-- the lock is free while there is a mark, the lease of that grant has ended, too: its process is stopped, and each of its
-- waiters would keep the lock for another lease. So they are removed, unless the caller is one of them, and notified: those
-- of a process that runs after all register again at their places.
-- The first write is ZREM or ZPOPMIN, which a server at maxmemory allows.
local function grant_after_lease(lock, waiters, counter, index, address, place)
  local head, score = unpack(redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES'))
  if score == '0' then
    redis.call('ZREM', waiters, head)
    local stopped = string.match(head, '^%S+')
    if string.match(address, '^%S*') ~= stopped then
      for _, other in ipairs(redis.call('ZRANGE', waiters, 0, -1)) do
        local channel, number = string.match(other, '^(%S+) (%x+)')
        if channel == stopped then
          redis.call('ZREM', waiters, other)
          redis.pcall('$PUBLISH', channel, number .. ' ' .. lock)
        end
      end
    end
    head, score = unpack(redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES'))
  end
  if not head or head == address or place > 0 and place < tonumber(score) then return nil end
  local granted = grant_next(lock, waiters, counter, index)
  local value = granted and redis.call('GET', lock)
  if value and redis.call('ZCARD', waiters) > 0 then redis.call('ZADD', waiters, 0, granted) end
  return value
end
