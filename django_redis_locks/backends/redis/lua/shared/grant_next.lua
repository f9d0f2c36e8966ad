-- Grants the free lock to the process that has waited longest: writes the lock with the token, the lease and the holder of its
-- address and the next fence, and publishes token and fence. A * after the stored fence marks the lock until a request with
-- the token claims it, or the process extends the lease. Channels without a subscriber are skipped. Returns the address whose
-- process was notified, or false.
-- A process is only notified, without a grant, if its address has no token, or other terms than a lease: it waits for something
-- else under this key. Or if there is no next fence: the request that it then sends gets the error.
-- If the user may not publish, the lock stays free, no process is notified, and the waiters poll.
-- A server at maxmemory allows ZPOPMIN, and all writes of a script after its first.
local function grant_next(lock, waiters, counter, index)
  while true do
    local first, score = unpack(redis.pcall('ZPOPMIN', waiters))
    if score == '0' then first = redis.pcall('ZPOPMIN', waiters)[1] end -- after a mark: see grant_after_lease
    if not first then return false end
    local channel, number, token, lease, holder = string.match(first, '^(%S+) (%x+) ?(%S*) ?(%S*) ?(.*)$')
    local word, time, fence, since = number, nil, nil, nil
    if tonumber(lease) then
      time = redis.call('TIME')
      fence, since = next_fence(counter, nil, time, $RESERVED_FENCES)
    end
    if fence then
      if holder ~= '' then holder = ' ' .. holder end
      redis.call('SET', lock, '1 lock ' .. token .. ' ' .. fence .. '*' .. since .. holder, 'PX', lease)
      if index then redis.call('ZADD', index, now_ms(time) + lease, lock) end
      word = number .. ',' .. token .. ',' .. fence
    end
    local receivers = redis.pcall('$PUBLISH', channel, word .. ' ' .. lock)
    if type(receivers) ~= 'table' and receivers > 0 then return first end
    if fence then
      redis.call('DEL', lock)
      if index then redis.call('ZREM', index, lock) end
    end
    if type(receivers) == 'table' then return false end
  end
end
