-- Grants permits to the waiters, in the order of their arrival, as long as they fit. Returns the number of processes that were
-- notified, and whether the waiter ``own``, or one at this place, is the first now.
-- A waiter is skipped if its channel has no subscriber. While it doesn't fit, it keeps those behind it waiting, unless it is
-- dead: nothing subscribes to its channel, or it has sent no request for the time that it registered with.
-- A waiter is only notified, without a grant, if the key is held by another kind of lock than it waits for, if it wants more
-- permits than the limit that is set, if its token has permits already, or if there is no next fence: the request that it then
-- sends gets the reply.
-- If the user may not publish, the permits stay free, and the waiters poll: a dead one is silent before long.
-- At most 1000 waiters are notified, to bound the time of a step, and the values that it may unpack. The others are at their
-- next request, and keep those behind them waiting until then.
-- The first write is ZREM, which a server at maxmemory allows, even if there is nothing to remove.
local function grant_permits(lock, ends, waiters, heartbeats, counter, state, time, own, place)
  local notified, now = 0, now_ms(time)
  if redis.call('ZCARD', waiters) == 0 then return 0, true end
  local silent = redis.call('ZRANGEBYSCORE', heartbeats, '-inf', now, 'LIMIT', 0, 1000)
  if silent[1] then
    redis.call('ZREM', heartbeats, unpack(silent))
    redis.call('ZREM', waiters, unpack(silent))
  end
  while notified < 1000 do
    local first = redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES')
    local address, arrival = first[1], first[2]
    if not address or address == own or place and place > 0 and place < tonumber(arrival) then return notified, true end
    local channel, number, token, lease, kind, limit, permits, holder = string.match(
      address, '^(%S+) (%x+) (%S+) (%d+)/(%l+)/(%d+)/(%d+) ?(.*)$')
    if not channel then channel, number = string.match(address, '^(%S+) (%x+)') end
    permits = tonumber(permits)
    local grantable = permits and (not state.kind or state.kind == kind) and not (state.set and permits > state.set)
    grantable = grantable and not redis.call('ZSCORE', ends, token)
    local free = grantable and limit_of(state, limit) - state.used
    local dead = false
    if grantable and permits > free then
      local any_free = state.used == 0 or state.used < limit_of(state, state.limit)
      local subscribers = any_free and redis.pcall('PUBSUB', '$NUMSUB', channel)[2]
      dead = subscribers == 0
      if not dead then return notified, false end
    end
    if not dead then
      local word, fence, since = number, nil, nil
      if grantable then
        redis.call('ZREM', heartbeats, '')
        fence, since = next_fence(counter, nil, time, 0)
      end
      if fence then word = number .. ',' .. token .. ',' .. fence end
      local receivers = redis.pcall('$PUBLISH', channel, word .. ' ' .. lock)
      if type(receivers) == 'table' then return notified, false end
      if receivers > 0 then
        notified = notified + 1
        if fence then add_hold(ends, state, kind, limit, permits, token, fence, '*', since, holder, now + lease) end
      end
    end
    forget_waiter(waiters, heartbeats, address)
  end
  return notified, false
end
