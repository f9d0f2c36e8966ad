-- Removes entries from an index whose lease ended long ago, at most 200.
local function purge_index(index, now)
  local old = redis.call('ZRANGEBYSCORE', index, '-inf', now - $INDEX_RETENTION, 'LIMIT', 0, 200)
  if old[1] then redis.call('ZREM', index, unpack(old)) end
end
