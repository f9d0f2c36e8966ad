-- Lists the holds of a hash with permits: {permits in use, limit, 1 if it was set, and for each hold {ms left, fence, since in
-- ms, permits, holder}}. If it is another hash: {-1, what}. Writes nothing.
local function list_permits(lock, ends, kind, now)
  local stored = redis.call('HGETALL', lock)
  local holds = {}
  for n = 1, #stored, 2 do holds[stored[n]] = stored[n + 1] end
  local found = string.match(holds.kind or '', '^1 (%l+)$')
  if not found or kind and found ~= kind then return describe_value(lock) end
  local used, list = 0, {0, tonumber(holds.set or holds.limit or 0), holds.set and 1 or 0}
  local tokens = redis.call('ZRANGEBYSCORE', ends, '(' .. now, '+inf', 'WITHSCORES')
  for n = 1, #tokens, 2 do
    local permits, fence, since, holder = string.match(holds[tokens[n]] or '', '^(%d+) (%d+)%*?@?(%d*) ?(.*)$')
    if permits then
      used = used + permits
      if since == '' then since = string.sub(fence, 1, -4) end
      list[#list + 1] = {tokens[n + 1] - now, fence, since, tonumber(permits), holder}
    end
  end
  list[1] = used
  return list, found
end
