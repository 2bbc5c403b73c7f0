import { useEffect, useRef, useState } from 'preact/hooks';
import { hrefOf, path } from '../shell/browser.ts';
import { callApi } from '../shell/client.ts';
import { readPeriod } from '../new-export/export-arguments.ts';
import { Button, SearchField } from '../components/controls.tsx';
import { formatAway, formatBytes, formatCount, formatDate, formatRows, formatTime } from '../components/format.ts';
import { createTabs, EmptyCard, ErrorMessage, LoadingState, MessageBox } from '../components/layout.tsx';
import { useLoaded } from '../components/load.ts';
import { isInProgress, RequestDetails, type ExportLine, type ExportPage } from './request-details.tsx';
import { ScheduleList } from './schedules.tsx';
import { WebhookList } from './webhooks.tsx';
import { DestinationList } from './destinations.tsx';

/** Refresh intervals while an export runs and otherwise. */
const busyMs = 1500;
const idleMs = 15_000;

/** The `before` of each visited page of the list; the first page has none. */
type Befores = readonly (string | undefined)[];

function describeEnd({ status }: ExportLine): { readonly word: string; readonly colour: 'good' | 'bad' | '' } {
  if (status === 'Success!') return { word: 'Ready', colour: 'good' };
  if (status.startsWith('Canceled')) return { word: 'Canceled', colour: '' };
  return { word: 'Failed', colour: 'bad' };
}

function StatusBadge({ line }: { readonly line: ExportLine }) {
  if (isInProgress(line)) {
    const percent = Number.parseInt(line.progress ?? '0', 10);
    return (
      <div class="progress">
        <span class="badge busy">{percent === 0 ? 'Queued or started' : `${percent} %`}</span>
        <progress max={100} value={percent} aria-label={`Progress of export ${line.idRawExport}`} />
      </div>
    );
  }
  const { word, colour } = describeEnd(line);
  return <span class={`badge ${colour}`}>{word}</span>;
}

/** Announces to screen readers which exports have ended while the page was open. */
function Announcements({ exports }: Pick<ExportPage, 'exports'>) {
  const running = useRef<ReadonlySet<string>>(new Set());
  const [announcement, setAnnouncement] = useState('');
  useEffect(() => {
    const ended = exports.filter((line) => running.current.has(line.idRawExport) && !isInProgress(line));
    if (ended.length > 0)
      setAnnouncement(ended.map((line) => `Export ${line.idRawExport}: ${describeEnd(line).word}.`).join(' '));
    running.current = new Set(exports.filter(isInProgress).map(({ idRawExport }) => idRawExport));
  }, [exports]);
  return (
    <p class="hidden" role="status">
      {announcement}
    </p>
  );
}

/** Describes the period of an export in its time zone. */
function describePeriod(line: ExportLine): string {
  const exportArguments = line.arguments ?? {};
  const period = readPeriod(exportArguments);
  if (exportArguments['sinceVersion'] !== undefined)
    return `since version ${String(exportArguments['sinceVersion']).split('-')[0]}`;
  if (period === undefined) return '';
  const { kind, from, to } = period;
  const zone = String(exportArguments['timezone']);
  if (kind === 'moments')
    return [exportArguments['tsFrom'], exportArguments['tsTo']]
      .map((at) => formatTime(Number(at), zone, '2-digit'))
      .join(' – ');
  return from === to ? `${formatDate(from)}, ${zone}` : `${formatDate(from)} – ${formatDate(to)}, ${zone}`;
}

interface LineProps {
  readonly line: ExportLine;
  readonly isOpen: boolean;
  readonly onChange: () => void;
}

function Line({ line, isOpen, onChange }: LineProps) {
  const { idRawExport, name, event, summary, rows, bytes, timestampCreated, timestampExpires } = line;
  return (
    <li class={isOpen ? 'request open' : 'request'}>
      <div class="request-head">
        <h2>
          <a href={hrefOf(isOpen ? 'exports' : `exports/${idRawExport}`)} aria-expanded={isOpen}>
            <span class="muted">#{idRawExport}</span> {name ?? event}
          </a>
        </h2>
        <div class="request-period muted">
          {describePeriod(line)}
          {line.idSchedule !== undefined && <span class="chip small">schedule, {line.slot}</span>}
        </div>
        <div class="request-status">
          <StatusBadge line={line} />
        </div>
        <div class="request-size number">
          {rows !== undefined && formatRows(rows)}
          {bytes !== undefined && <span class="muted small">{formatBytes(bytes)}</span>}
        </div>
        <div class="request-time small muted number">
          <time dateTime={new Date(Number(timestampCreated) * 1000).toISOString()}>
            {formatTime(Number(timestampCreated))}
          </time>
          {timestampExpires !== undefined && line.status === 'Success!' && (
            <span>links expire {formatAway(Number(timestampExpires))}</span>
          )}
        </div>
        {summary !== undefined && <p class="request-summary small muted">{summary}</p>}
      </div>
      {isOpen && <RequestDetails line={line} onChange={onChange} />}
    </li>
  );
}

interface PiecesProps {
  readonly data: ExportPage;
  readonly isSearch: boolean;
  readonly befores: Befores;
  readonly onMove: (befores: Befores) => void;
}

function Pieces({ data: { total, before }, isSearch, befores, onMove }: PiecesProps) {
  const isFirst = befores.length === 1;
  const steps = [
    ['Newest', isFirst, [undefined]],
    ['Newer', isFirst, befores.slice(0, -1)],
    ['Older', before === undefined, [...befores, before]],
  ] as const;
  return (
    <nav class="spread pages" aria-label="Pagination">
      <span class="muted" role="status">
        {total === 1 ? '1 export' : `${formatCount(total)} exports`}
        {isSearch && ' found'}
      </span>
      <span class="row">
        {!(isFirst && before === undefined) &&
          steps.map(([title, isAtEnd, to]) => (
            <Button key={title} disabled={isAtEnd} onClick={() => onMove(to)}>
              {title}
            </Button>
          ))}
      </span>
    </nav>
  );
}

/** Lists the user's exports, the newest first, and follows the running ones. */
function RequestList() {
  const [, openId = ''] = path.value.split('/');
  const [befores, setBefores] = useState<Befores>([undefined]);
  const [search, setSearch] = useState('');
  const before = befores.at(-1);
  const onSearch = (text: string): void => {
    if (text === search) return;
    setSearch(text);
    setBefores([undefined]);
  };
  const loaded = useLoaded(
    (signal) => callApi('/api/raw/v1/export/list.json', { callArguments: { limit: '25', before, search }, signal }),
    [before, search],
    (page) => (page.exports.some(isInProgress) ? busyMs : idleMs),
  );
  const { data, error, isLoading, reload } = loaded;
  const isThere = data?.exports.some(({ idRawExport }) => idRawExport === openId) === true;
  // The address may name an older export: once, the page is shown that starts with it.
  const sought = useRef('');
  useEffect(() => {
    if (data === undefined || isLoading || sought.current === openId) return;
    sought.current = openId;
    if (!isThere && search === '' && /^[1-9]\d{0,14}$/.test(openId))
      setBefores([undefined, String(Number(openId) + 1)]);
  }, [data, isLoading, openId]);
  if (data === undefined) return <LoadingState of={loaded} />;
  if (data.total === 0 && search === '')
    return (
      <EmptyCard title="No exports yet">
        <p>Your exports appear here with progress and download links.</p>
        <a class="button primary" href={hrefOf('')}>
          New export
        </a>
      </EmptyCard>
    );
  return (
    <>
      <div class="row find-row">
        <SearchField label="Search by name, event or app" onSearch={onSearch} />
      </div>
      <ErrorMessage error={error} />
      {!isLoading && !isThere && before === String(Number(openId) + 1) && (
        <MessageBox kind="info">Export #{openId} not found: it has expired, or belongs to another user.</MessageBox>
      )}
      <Announcements exports={data.exports} />
      {data.exports.length > 0 && (
        <ol class="requests card" aria-busy={isLoading}>
          {data.exports.map((line) => (
            <Line key={line.idRawExport} line={line} isOpen={line.idRawExport === openId} onChange={reload} />
          ))}
        </ol>
      )}
      <Pieces
        data={data}
        isSearch={search !== ''}
        befores={befores}
        onMove={(moved) => !isLoading && setBefores(moved)}
      />
    </>
  );
}

export const ExportsPage = createTabs('Exports', [
  { path: 'exports', title: 'Requests', component: RequestList },
  { path: 'exports/schedules', title: 'Schedules', component: ScheduleList },
  { path: 'exports/webhooks', title: 'Webhooks', component: WebhookList },
  { path: 'exports/destinations', title: 'Destinations', component: DestinationList },
]);
