-- Extends the lease of a hold of permits to some ms from now; it is never shortened. Returns the hold, or nil if the token has
-- none, and in that case perhaps the error. The first write is PEXPIRE, which a server at maxmemory allows.
local function extend_hold(lock, ends, index, token, lease, now)
  local stored = redis.pcall('HMGET', lock, token, 'permits')
  if stored.err then return nil, not string.find(stored.err, 'WRONGTYPE') and stored or nil end
  local at = stored[1] and stored[2] and tonumber(redis.call('ZSCORE', ends, token) or nil)
  if not at or at <= now then return nil end
  local new = now + lease
  if at < new then
    local head, set, middle, last = string.match(stored[2], '^(%d+ %l+ %d+ )(%d+)( %d+ %d+ )(%d+)$')
    last = math.max(last, new)
    redis.call('PEXPIRE', ends, last - now)
    redis.call('ZADD', ends, 'XX', new, token)
    redis.call('PEXPIRE', lock, set ~= '0' and math.max(last - now, $SET_LIMIT_RETENTION) or last - now)
    redis.call('HSET', lock, 'permits', head .. set .. middle .. string.format('%.0f', last))
    if index then redis.call('ZADD', index, 'XX', last, lock) end
  end
  return stored[1]
end
