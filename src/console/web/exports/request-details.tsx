import { useState } from 'preact/hooks';
import { navigate } from '../shell/browser.ts';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { loadDictionary, startFrom } from '../new-export/draft.ts';
import { toDraft } from '../new-export/export-arguments.ts';
import { Button, CopyButton } from '../components/controls.tsx';
import { formatAway, formatBytes, formatCount, formatTime } from '../components/format.ts';
import { ErrorMessage, LoadingState, MessageBox, Table, type TableColumn } from '../components/layout.tsx';
import { useAction, useLoaded } from '../components/load.ts';
import { DeliveryState } from './destinations.tsx';
import { ScheduleForm } from './schedules.tsx';

/** Refresh intervals while an export is delivered and otherwise, ms. */
const deliveryMs = 2000;
const idleMs = 3_600_000;

/** A page of the list of exports; times are Unix seconds. */
export type ExportPage = AnswerOf<'/api/raw/v1/export/list.json'>;
export type ExportLine = ExportPage['exports'][number];
type ExportState = AnswerOf<'/api/raw/v1/export/get.json'>;

export function isInProgress({ status }: Pick<ExportLine, 'status'>): boolean {
  return status === 'In progress';
}

function fileNameOf(link: string): string {
  return new URL(link).pathname.split('/').at(-1) ?? '';
}

const fileColumns: readonly TableColumn<NonNullable<ExportState['files']>[number]>[] = [
  [
    'File',
    ({ link }) => (
      <a href={link} download>
        {fileNameOf(link)}
      </a>
    ),
  ],
  ['Rows', ({ rows }) => formatCount(rows), 'number'],
  ['Size', ({ bytes }) => formatBytes(bytes), 'number'],
  [
    'SHA-256',
    ({ sha256 }) => (
      <span class="row nowrap-row">
        <code title={sha256}>{sha256.slice(0, 12)}…</code>
        <CopyButton text={sha256} label="Copy checksum" />
      </span>
    ),
  ],
];

function Files({ state }: { readonly state: ExportState }) {
  const { files = [], archive, manifest } = state;
  if (files.length === 0) return null;
  const isOne = files.length === 1;
  const ends = Number(files[0]?.timestampExpires);
  const downloads = [
    ...(isOne ? [['Download', files[0]?.link] as const] : []),
    [isOne ? 'Download as zip' : 'Download all as zip', archive?.link],
    ['Signed manifest', manifest?.link],
  ] as const;
  return (
    <div class="stack">
      <Table label="Files" kind="as-cards" columns={fileColumns} rows={files} keyOf={({ link }) => link} />
      <div class="row">
        {downloads
          .filter(([, link]) => link !== undefined)
          .map(([title, link], index) => (
            <a key={title} class={index === 0 ? 'button primary' : 'button'} href={link} download>
              {title}
            </a>
          ))}
        <CopyButton text={files.map(({ link }) => link).join('\n')} label={isOne ? 'Copy link' : 'Copy links'} />
        <span class="muted small">
          Your links expire {formatAway(ends)}, {formatTime(ends)}.
        </span>
      </div>
    </div>
  );
}

function Order({ line }: { readonly line: ExportLine }) {
  const exportArguments = Object.entries(line.arguments ?? {}).filter(([name]) => name !== 'event');
  return (
    <details>
      <summary>Parameters</summary>
      <dl class="order-list">
        {exportArguments.map(([name, value]) => (
          <div key={name}>
            <dt>
              <code>{name}</code>
            </dt>
            <dd>
              {typeof value === 'string' ? value : value.join(', ')}
              {/^(ts|availabilityTs)/.test(name) && (
                <span class="muted">
                  {' '}
                  ({formatTime(Number(value), String(line.arguments?.['timezone']), '2-digit')})
                </span>
              )}
            </dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

/** Shows the details, files and actions of an export. */
export function RequestDetails({ line, onChange }: { readonly line: ExportLine; readonly onChange: () => void }) {
  const { idRawExport, status } = line;
  const { error, act } = useAction();
  const [isScheduling, setScheduling] = useState(false);
  // Each response has newly signed links; a new status in the list loads it again.
  const callArguments = { idRawExport };
  const state = useLoaded(
    (signal) => callApi('/api/raw/v1/export/get.json', { callArguments, signal }),
    [idRawExport, status],
    ({ delivery }) => (delivery?.status === 'Waiting' ? deliveryMs : idleMs),
  );

  const change = (work: () => Promise<unknown>): void => void act(work).then(onChange);
  const cancel = (): Promise<unknown> => callApi('/api/raw/v1/export/cancel.json', { method: 'POST', callArguments });

  async function repeat(): Promise<void> {
    if (line.arguments === undefined) return;
    startFrom(toDraft(line.arguments, await loadDictionary()));
    navigate('');
  }

  return (
    <div class="details stack">
      {line.errorMessage !== undefined && <MessageBox kind="error">{line.errorMessage}</MessageBox>}
      {status === 'Error occurred' && (
        <MessageBox kind="error">Export failed. Try again, or contact your operator with the export ID.</MessageBox>
      )}
      <LoadingState of={state} />
      {state.data !== undefined && <Files state={state.data} />}
      {state.data?.delivery !== undefined && <DeliveryState delivery={state.data.delivery} />}
      <ErrorMessage error={error} />
      <Order line={line} />
      <div class="row">
        {isInProgress(line) && (
          <Button kind="danger" onClick={() => change(cancel)}>
            Cancel export
          </Button>
        )}
        {line.arguments !== undefined && (
          <>
            <Button onClick={() => change(repeat)}>Duplicate…</Button>
            <Button aria-expanded={isScheduling} onClick={() => setScheduling(!isScheduling)}>
              Schedule…
            </Button>
          </>
        )}
      </div>
      {isScheduling && line.arguments !== undefined && <ScheduleForm ordered={line.arguments} />}
    </div>
  );
}
