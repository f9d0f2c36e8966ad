-- The index that a record is in, which the end of its nonce tells; nil if in none, or there is none.
local function record_index(nonce, held, queued)
  local which = nonce and string.match(nonce, '%.(%l+)$')
  return which == 'held' and held or which == 'queued' and queued or nil
end
