-- Drops a hold of permits; the keys with it if it was the last one, unless a limit was set. The first write is ZREM or DEL, which a
-- server at maxmemory allows.
local function drop_hold(lock, ends, state, token, hold)
  state.used, state.dropped = state.used - string.match(hold, '^%d+'), true
  if state.used == 0 and not state.set then
    redis.call('DEL', lock, ends)
    state.deleted = true
  else
    redis.call('ZREM', ends, token)
    redis.call('HDEL', lock, token)
  end
end
