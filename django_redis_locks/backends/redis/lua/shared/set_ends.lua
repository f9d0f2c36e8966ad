-- Lets the keys of permits end with the last lease, a set limit $SET_LIMIT_RETENTION ms later than now, and returns the end of
-- that lease. Makes only writes that a server at maxmemory allows.
local function set_ends(lock, ends, set, now)
  local last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIRE', ends, last - now)
  redis.call('PEXPIRE', lock, set and math.max(last - now, $SET_LIMIT_RETENTION) or last - now)
  return last
end
