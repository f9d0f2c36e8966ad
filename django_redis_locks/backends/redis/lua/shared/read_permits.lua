-- Reads the permits of a key, and drops the holds with an ended lease. Returns the state, which ``save_permits`` writes:
-- the kind and the limit (nil while nothing is held), the limit that is set (or nil), the permits in use, the time before which no
-- lease ends, the end of the last lease, the hold of the token (or nil), whether holds were dropped, and the fields to write.
-- ``kind``: nil for any kind.
-- If the key holds another value: nil. If the user may not read it: nil and the error.
-- The first write is ZREM or DEL, which a server at maxmemory allows.
local function read_permits(lock, ends, kind, token, now)
  local stored = redis.pcall('HMGET', lock, 'permits', token)
  if stored.err then return nil, not string.find(stored.err, 'WRONGTYPE') and stored or nil end
  if not stored[1] then
    if redis.call('PTTL', lock) ~= -2 then return nil end
    return {used = 0, first = 0, last = 0, fields = {}}
  end
  local found, limit, set, used, first, last = string.match(stored[1], '^1 (%l+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not found or kind and found ~= kind then return nil end
  local state = {
    kind = found, limit = tonumber(limit), set = set ~= '0' and tonumber(set) or nil, used = tonumber(used), first = first, last = last,
    own = stored[2] or nil, fields = {}
  }
  if state.used == 0 or tonumber(first) > now then return state end
  while true do
    local ended = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 1000)
    if not ended[1] then break end
    redis.call('ZREM', ends, unpack(ended))
    for _, hold in ipairs(redis.call('HMGET', lock, unpack(ended))) do
      state.used = state.used - (hold and string.match(hold, '^%d+') or 0)
    end
    redis.call('HDEL', lock, unpack(ended))
  end
  state.dropped = true
  local next_end = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2]
  if next_end then
    state.first = next_end
    if state.own and not redis.call('ZSCORE', ends, token) then state.own = nil end
  else
    -- The ends have expired as a key, while a limit that was set keeps the lock; or the server has evicted them
    redis.call('DEL', lock)
    state.used, state.own = 0, nil
  end
  return state
end
