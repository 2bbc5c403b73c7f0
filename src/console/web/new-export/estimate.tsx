import type { CallArguments } from '../frame/call-arguments.ts';
import { callApi, type AnswerOf } from '../frame/client.ts';
import { formatBytes, formatCount, formatShort, formatSpan } from '../parts/format.ts';
import { useLoaded, type Loaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';
import { pause } from '../parts/pause.ts';
import { orderKey } from './snippets.ts';

type Estimate = AnswerOf<'/api/raw/v1/export/estimate.json'>;
type Bounds = Estimate['rows'];

/** An estimate of each order is asked for only when it has stood for so long. */
const settleMs = 500;

function useEstimate(given: CallArguments | undefined): Loaded<Estimate | undefined> {
  return useLoaded(
    async (signal) => {
      if (given === undefined) return undefined;
      await pause(settleMs, signal);
      return await callApi('/api/raw/v1/export/estimate.json', { method: 'POST', given, signal });
    },
    [given === undefined ? undefined : orderKey(given)],
  );
}

function describeBounds({ atLeast, expected, atMost }: Bounds, format: (value: number) => string): string {
  if (atLeast === atMost) return format(atLeast);
  if (expected !== null) return `≈ ${format(expected)}`;
  return atMost === null ? `${format(atLeast)} or more` : `up to ${format(atMost)}`;
}

function describeRange({ atLeast, atMost }: Bounds, format: (value: number) => string): string {
  if (atLeast === atMost) return 'exactly';
  return atMost === null ? `at least ${format(atLeast)}` : `${format(atLeast)} to ${format(atMost)}`;
}

/** What the order will be: rows, size, files, time. */
export function EstimateView({ given }: { readonly given: CallArguments | undefined }) {
  const { data: estimate, error, isLoading } = useEstimate(given);
  if (given === undefined) return <p class="muted">The estimate comes when the form is complete.</p>;
  if (error !== undefined) return <Message kind="error">{error.message}</Message>;
  if (estimate === undefined) return <p class="muted">Estimating…</p>;
  const { rows, bytes, parts, seconds, overLimits } = estimate;
  const isEmpty = rows.atMost === 0;
  return (
    <div class="estimate" aria-busy={isLoading}>
      <dl>
        <div class="figure">
          <dt>Rows</dt>
          <dd>
            <strong>{describeBounds(rows, formatShort)}</strong>
            <span class="muted small">{describeRange(rows, formatCount)}</span>
          </dd>
        </div>
        <div class="figure">
          <dt>Size</dt>
          <dd>
            <strong>{describeBounds(bytes, formatBytes)}</strong>
            <span class="muted small">{describeRange(bytes, formatBytes)}</span>
          </dd>
        </div>
        <div class="figure">
          <dt>Files</dt>
          <dd>{describeBounds({ ...parts, expected: null }, formatCount)}</dd>
        </div>
        <div class="figure">
          <dt>Runs for about</dt>
          <dd>{formatSpan(seconds)}</dd>
        </div>
      </dl>
      {isEmpty && <Message kind="info">There are no such rows. Another period or fewer filters may have some.</Message>}
      {overLimits.map(({ limit, isCertain, todo }) => (
        <Message key={limit} kind={isCertain ? 'error' : 'warning'}>
          {isCertain ? 'Too many' : 'Perhaps too many'} {limit}: {todo}
        </Message>
      ))}
    </div>
  );
}
