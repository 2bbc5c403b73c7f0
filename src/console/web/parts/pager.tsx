import { formatCount } from './format.ts';

/** Steps through a list that comes in parts; nothing where one part is all. */
export function Pager({
  offset,
  size,
  total,
  onMove,
}: {
  readonly offset: number;
  readonly size: number;
  readonly total: number;
  readonly onMove: (offset: number) => void;
}) {
  if (total <= size) return null;
  const last = Math.min(offset + size, total);
  return (
    <nav class="row pager" aria-label="Parts of the list">
      <button
        class="button small"
        type="button"
        disabled={offset === 0}
        onClick={() => onMove(Math.max(0, offset - size))}
      >
        Previous
      </button>
      <span class="muted small">
        {formatCount(offset + 1)} to {formatCount(last)} of {formatCount(total)}
      </span>
      <button class="button small" type="button" disabled={last >= total} onClick={() => onMove(offset + size)}>
        Next
      </button>
    </nav>
  );
}
