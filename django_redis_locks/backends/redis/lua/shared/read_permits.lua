-- Reads the permits of a key, and drops the holds with an ended lease. Returns the state, which ``save_permits`` writes:
-- the kind and the limit (nil while nothing is held), the limit that is set (or nil), the permits in use, the hold of the token
-- (or nil), and whether holds were dropped. ``kind``: nil for any kind.
-- If the key holds another value: nil and {-1, what}. If the user may not read it: nil and the error.
-- If one of the two keys is gone, which a server that evicts keys may do, there is no hold.
-- The first write is ZREM or DEL, which a server at maxmemory allows.
local function read_permits(lock, ends, kind, token, now)
  local stored = redis.pcall('HMGET', lock, 'kind', 'limit', 'set', 'used', token)
  if stored.err and not string.find(stored.err, 'WRONGTYPE') then return nil, stored end
  local stored_kind = (stored[3] or stored[4]) and string.match(stored[1] or '', '^1 (%l+)$')
  local foreign = stored_kind and stored_kind ~= (kind or stored_kind) or not stored_kind and redis.call('TYPE', lock)['ok'] ~= 'none'
  if stored.err or foreign then return nil, describe_value(lock) end
  local state = {
    kind = stored_kind, limit = tonumber(stored[2] or nil), set = tonumber(stored[3] or nil), used = tonumber(stored[4] or 0),
    own = stored[5] or nil
  }
  local first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
  if (state.used > 0) ~= (first[1] ~= nil) then
    redis.call('DEL', lock, ends)
    return {used = 0, dropped = true}
  end
  while first[1] and tonumber(first[2]) <= now do
    local ended = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 1000)
    redis.call('ZREM', ends, unpack(ended))
    for _, hold in ipairs(redis.call('HMGET', lock, unpack(ended))) do
      state.used = state.used - (hold and string.match(hold, '^%d+') or 0)
    end
    redis.call('HDEL', lock, unpack(ended))
    state.dropped = true
    first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
  end
  if state.own and state.dropped and not redis.call('ZSCORE', ends, token) then state.own = nil end
  return state
end
