-- Reads the value of a lock or record: token or nonce, fence, since in ms, further text, and ms left; or nil and {-1, what
-- lives there instead}.
local function read_value(key, value, kind)
  if value.err then
    if not string.find(value.err, 'WRONGTYPE') then return nil, value end -- a right is missing
    return nil, {-1, 'a ' .. redis.call('TYPE', key)['ok']}
  end
  local format, found, secret, fence, since, details = string.match(value, '^(%d+) (%l+) (%S+) (%d+)%+?@?(%d*) ?(.*)$')
  if not format then return nil, {-1, 'a string'} end
  local what = found == 'record' and 'a record' or 'a lock'
  if format ~= '1' then return nil, {-1, what .. ' of format ' .. format} end
  if found ~= kind then return nil, {-1, found == 'record' and what or 'a lock of kind ' .. found} end
  local left = redis.call('PTTL', key)
  if left < 0 then return nil, {-1, what .. ' without expiry'} end
  return secret, fence, since == '' and string.sub(fence, 1, -4) or since, details, left
end
