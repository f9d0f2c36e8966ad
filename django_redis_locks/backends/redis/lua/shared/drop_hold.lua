-- Drops a hold of permits. The first write is ZREM, which a server at maxmemory allows.
local function drop_hold(lock, ends, state, token, hold)
  redis.call('ZREM', ends, token)
  redis.call('HDEL', lock, token)
  state.used, state.dropped = state.used - string.match(hold, '^%d+'), true
end
