import { useEffect, useRef, useState } from 'preact/hooks';
import { callApi, renderArguments, type AnswerOf, type CallArguments } from '../shell/client.ts';
import { CopyButton, Segments } from '../components/controls.tsx';
import { formatBytes, formatCount, formatShort, formatSpan } from '../components/format.ts';
import { Card, LoadingState, MessageBox, Note, Table, type TableColumn } from '../components/layout.tsx';
import { pause, useLoaded, type Loaded } from '../components/load.ts';
import type { FormatEntry } from './draft.ts';
import { makeSnippets } from './snippets.ts';

type Estimate = AnswerOf<'/api/raw/v1/export/estimate.json'>;
type Bounds = Estimate['rows'];

/** Delay after a change before an estimate is requested, ms. */
const settleMs = 500;

function useEstimate(callArguments: CallArguments | undefined): Loaded<Estimate | undefined> {
  return useLoaded(
    async (signal) => {
      if (callArguments === undefined) return undefined;
      await pause(settleMs, signal);
      return await callApi('/api/raw/v1/export/estimate.json', { method: 'POST', callArguments, signal });
    },
    [callArguments === undefined ? undefined : renderArguments(callArguments)],
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

interface FigureProps {
  readonly name: string;
  readonly bounds: Bounds;
  readonly format: (value: number) => string;
  readonly formatEnds: (value: number) => string;
}

function Figure({ name, bounds, format, formatEnds }: FigureProps) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>
        <strong>{describeBounds(bounds, format)}</strong>
        <span class="muted small">{describeRange(bounds, formatEnds)}</span>
      </dd>
    </div>
  );
}

/** Shows the estimated rows, size, files and duration. */
export function EstimateView({ callArguments }: { readonly callArguments: CallArguments | undefined }) {
  const { data: estimate, error, isLoading } = useEstimate(callArguments);
  if (callArguments === undefined) return <p class="muted">The estimate appears when the form is complete.</p>;
  if (error !== undefined || estimate === undefined)
    return <LoadingState of={{ data: estimate, error }} wait="Estimating…" />;
  const { rows, bytes, parts, seconds, overLimits } = estimate;
  const isEmpty = rows.atMost === 0;
  return (
    <div class="estimate" aria-busy={isLoading}>
      <dl>
        <Figure name="Rows" bounds={rows} format={formatShort} formatEnds={formatCount} />
        <Figure name="Size" bounds={bytes} format={formatBytes} formatEnds={formatBytes} />
        <div class="figure">
          <dt>Files</dt>
          <dd>{describeBounds({ ...parts, expected: null }, formatCount)}</dd>
        </div>
        <div class="figure">
          <dt>Estimated duration</dt>
          <dd>{formatSpan(seconds)}</dd>
        </div>
      </dl>
      {isEmpty && <MessageBox kind="info">No matching rows. Try another period or fewer filters.</MessageBox>}
      {overLimits.map(({ limit, isCertain, action }) => (
        <MessageBox key={limit} kind={isCertain ? 'error' : 'warning'}>
          {isCertain ? 'Too many' : 'Possibly too many'} {limit}: {action}
        </MessageBox>
      ))}
    </div>
  );
}

/** Shows the first rows as of the request. */
export function PreviewView({
  callArguments,
  isOld,
}: {
  readonly callArguments: CallArguments;
  readonly isOld: boolean;
}) {
  const { data, error, isLoading } = useLoaded(
    (signal) => callApi('/api/raw/v1/export/preview.json', { method: 'POST', callArguments, signal }),
    [callArguments],
  );
  const preview = isLoading ? undefined : data;
  const place = useRef<HTMLElement>(null);
  useEffect(() => place.current?.scrollIntoView({ block: 'start' }), [callArguments]);

  return (
    <section ref={place} class="card stack looked-at" aria-labelledby="preview-title">
      <h2 id="preview-title">Preview</h2>
      <LoadingState of={{ data: preview, error }} wait="Reading…" />
      {isOld && <p class="muted">Parameters changed. Show the preview again.</p>}
      {preview?.rows.length === 0 && <p class="muted">No matching rows.</p>}
      {preview !== undefined && preview.rows.length > 0 && (
        <>
          <Table
            label="Preview rows, scrollable"
            tableKind="preview"
            columns={preview.columns.map((column, at): TableColumn<readonly (string | null)[]> => [
              column,
              (row) => row[at],
            ])}
            rows={preview.rows}
            keyOf={(_, line) => line}
          />
          <Note>
            {preview.isTruncated
              ? `First ${formatCount(preview.rows.length)} rows; there are more.`
              : `All ${formatCount(preview.rows.length)} rows.`}
          </Note>
        </>
      )}
    </section>
  );
}

interface SnippetsProps {
  readonly callArguments: CallArguments;
  readonly formats: readonly FormatEntry[];
}

export function SnippetsView({ callArguments, formats }: SnippetsProps) {
  const snippets = makeSnippets(location.origin, callArguments, formats);
  const [name, setName] = useState(snippets[0]?.name);
  const shown = snippets.find((snippet) => snippet.name === name);
  return (
    <Card id="snippets-title" title="API and CLI examples">
      <div class="spread">
        <Segments
          legend="Example"
          name="snippet"
          choices={snippets.map((snippet) => [snippet.name, snippet.name] as const)}
          value={name}
          onChoose={setName}
        />
        <CopyButton text={shown?.text ?? ''} />
      </div>
      <pre class="scroll code" tabIndex={0} role="region" aria-label={`${shown?.name} example`}>
        {shown?.text}
      </pre>
      <Note>
        <code>USER_ID</code> and <code>SECRET</code> are your sign-in credentials. Keep the secret out of files that
        others can read.
      </Note>
    </Card>
  );
}
