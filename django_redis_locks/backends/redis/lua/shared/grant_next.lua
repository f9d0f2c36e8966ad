-- Grants the free lock to the process that has waited longest: writes the token and the lease of its address, and publishes
-- token and fence. A * after the fence marks the lock until a request with the token claims it. Channels without a subscriber
-- are skipped. Returns whether a process was notified. A server at maxmemory allows all writes of a script after its first.
-- A process without a token waits for something else under this key, and is only notified. If there is no next fence, the
-- process is only notified, too: its request gets the error. If the user may not publish, no process is notified, and the
-- waiters poll.
local function grant_next(lock, waiters, counter, index)
  while true do
    local first = redis.pcall('ZPOPMIN', waiters)[1]
    if not first then return false end
    local channel, number, token, lease, holder = string.match(first, '^(%S+) (%x+) ?(%S*) ?(%d*) ?(.*)$')
    local word = number
    local time, fence, since
    if token ~= '' then time = redis.call('TIME') end
    if time then fence, since = next_fence(counter, nil, time, $RESERVED_FENCES) end
    if fence then
      if holder ~= '' then holder = ' ' .. holder end
      redis.call('SET', lock, '1 lock ' .. token .. ' ' .. fence .. '*' .. since .. holder, 'PX', lease)
      if index then redis.call('ZADD', index, now_ms(time) + lease, lock) end
      word = number .. ',' .. token .. ',' .. fence
    end
    local receivers = redis.pcall('PUBLISH', channel, word .. ' ' .. lock)
    if type(receivers) ~= 'table' and receivers > 0 then return true end
    if fence then
      redis.call('DEL', lock)
      if index then redis.call('ZREM', index, lock) end
    end
    if type(receivers) == 'table' then return false end
  end
end
