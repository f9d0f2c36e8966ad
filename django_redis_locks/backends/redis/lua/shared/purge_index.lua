-- Removes entries from an index, at most 200: those of leases that ended long ago.
local function purge_index(index, now)
  local old = redis.call('ZRANGEBYSCORE', index, '-inf', now - $INDEX_RETENTION, 'LIMIT', 0, 200)
  if old[1] then redis.call('ZREM', index, unpack(old)) end
end
