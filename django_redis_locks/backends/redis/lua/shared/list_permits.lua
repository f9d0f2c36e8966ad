-- Lists the holds of permits: {kind, permits in use, limit, 1 if it was set, and for each hold {ms left, fence, since in ms, permits,
-- holder}}; {} if the key is absent. If it holds another value, or another kind than ``kind`` (nil for any): {-1, what}. Writes
-- nothing.
local function list_permits(lock, ends, kind, now)
  local stored = redis.pcall('HGETALL', lock)
  if stored.err then return string.find(stored.err, 'WRONGTYPE') and describe_value(lock) or stored end
  if not stored[1] then return {} end
  local holds = {}
  for n = 1, #stored, 2 do holds[stored[n]] = stored[n + 1] end
  local found, limit, set = string.match(holds.permits or '', '^1 (%l+) (%d+) (%d+) ')
  if not found or kind and found ~= kind then return describe_value(lock) end
  local used, list = 0, {found, 0, tonumber(set ~= '0' and set or limit), set ~= '0' and 1 or 0}
  local tokens = redis.call('ZRANGEBYSCORE', ends, '(' .. now, '+inf', 'WITHSCORES')
  for n = 1, #tokens, 2 do
    local permits, fence, since, holder = string.match(holds[tokens[n]] or '', '^(%d+) (%d+)%*?@?(%d*) ?(.*)$')
    if permits then
      used = used + permits
      if since == '' then since = string.sub(fence, 1, -4) end
      list[#list + 1] = {tokens[n + 1] - now, fence, since, tonumber(permits), holder}
    end
  end
  list[2] = used
  return list
end
