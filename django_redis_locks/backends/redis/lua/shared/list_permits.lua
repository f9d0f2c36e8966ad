-- Lists the holds of permits: {kind, permits in use, limit, 1 if it was set, and for each hold {ms left, fence, since in ms, permits,
-- holder}}, for the $MOST_LISTED with the first ends of leases; {} if the key is absent. If it holds another value, or another kind than
-- ``kind`` (nil for any): {-1, what}. Writes nothing.
local function list_permits(lock, ends, kind, now)
  local stored = redis.pcall('HMGET', lock, 'permits')
  if stored.err then return string.find(stored.err, 'WRONGTYPE') and describe_value(lock) or stored end
  if not stored[1] then return redis.call('TYPE', lock)['ok'] == 'none' and {} or describe_value(lock) end
  local found, limit, set, used = string.match(stored[1], '^1 (%l+) (%d+) (%d+) (%d+) ')
  if not found or kind and found ~= kind then return describe_value(lock) end
  local list = {found, 0, tonumber(set ~= '0' and set or limit), set ~= '0' and 1 or 0}
  local tokens = redis.call('ZRANGEBYSCORE', ends, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, $MOST_LISTED)
  for n = 1, #tokens, 2 do
    local hold = redis.call('HMGET', lock, tokens[n])[1] or ''
    local permits, fence, since, holder = string.match(hold, '^(%d+) (%d+)%*?@?(%d*) ?(.*)$')
    if permits then
      if since == '' then since = string.sub(fence, 1, -4) end
      list[#list + 1] = {tokens[n + 1] - now, fence, since, tonumber(permits), holder}
    end
  end
  if not tokens[1] then return list end
  for _, ended in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now)) do
    used = used - string.match(redis.call('HMGET', lock, ended)[1] or '0', '^%d+')
  end
  list[2] = tonumber(used)
  return list
end
