import { useState } from 'preact/hooks';
import { hrefOf, navigate } from '../shell/browser.ts';
import { callApi, type AnswerOf } from '../shell/client.ts';
import type { ExportRequestArguments } from '../new-export/export-arguments.ts';
import { Button, Check, Input, Select } from '../components/controls.tsx';
import { formatAway, formatRows, formatTime } from '../components/format.ts';
import { LabelFields, labelArguments, type Labels } from '../components/labels.tsx';
import { EmptyCard, ErrorMessage, LoadingState, MessageBox, useKeptFocus } from '../components/layout.tsx';
import { useAction, useLoaded } from '../components/load.ts';

/** Refresh intervals while a run is in progress and otherwise, ms. */
const busyMs = 1500;
const idleMs = 5000;

const frequencies = ['hour', 'day', 'week'] as const;
const capitalize = (word: string): string => `${word.charAt(0).toUpperCase()}${word.slice(1)}`;
const weekdays = ['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday'].map(
  (day) => [day, capitalize(day)] as const,
);
/** Arguments that a schedule sets itself. */
const setBySchedule = /^(date|ts|availabilityTs)(From|To)$|^(asOf|sinceVersion|name|deliverTo)$/;

interface SlotRule {
  readonly every: string;
  readonly at: string;
  readonly weekday: string;
}

interface SlotFieldsProps {
  readonly rule: SlotRule;
  readonly zone: string;
  readonly onChange: (rule: SlotRule) => void;
}

function SlotFields({ rule, zone, onChange }: SlotFieldsProps) {
  const { every, at, weekday } = rule;
  return (
    <div class="columns-3">
      <Select
        label="Every"
        choices={frequencies}
        value={every}
        onChange={(event) => onChange({ ...rule, every: event.currentTarget.value })}
      />
      {every === 'week' && (
        <Select
          label="On"
          choices={weekdays}
          value={weekday}
          onChange={(event) => onChange({ ...rule, weekday: event.currentTarget.value })}
        />
      )}
      <Input
        label={every === 'hour' ? 'Minute of the hour' : `Time (${zone})`}
        type="time"
        required
        value={at}
        onInput={(event) => onChange({ ...rule, at: event.currentTarget.value })}
      />
    </div>
  );
}

/** Creates a schedule from an export's arguments. */
export function ScheduleForm({ ordered }: { readonly ordered: ExportRequestArguments }) {
  const { name = '', deliverTo = '' } = ordered;
  const [labels, setLabels] = useState<Labels>({ name: String(name), deliverTo: String(deliverTo) });
  const [rule, setRule] = useState<SlotRule>({ every: 'day', at: '04:00', weekday: 'monday' });
  const { every, at, weekday } = rule;
  const [isFeed, setFeed] = useState(false);
  const { isBusy, error, act } = useAction();
  const zone = String(ordered['timezone']);

  async function create(event: Event): Promise<void> {
    event.preventDefault();
    const callArguments = {
      ...Object.fromEntries(Object.entries(ordered).filter(([argument]) => !setBySchedule.test(argument))),
      selectors: [ordered['selectors'] ?? []].flat().join(','),
      every,
      at: every === 'hour' ? at.slice(-3) : at,
      ...labelArguments(labels),
      ...(every === 'week' ? { weekday } : {}),
      ...(isFeed ? { sinceVersion: '0' } : {}),
    };
    await act(async () => {
      await callApi('/api/schedule/v1/create.json', { method: 'POST', callArguments });
      navigate('exports/schedules');
    });
  }

  return (
    <form class="stack inset" onSubmit={(event) => void create(event)}>
      <h3>New schedule</h3>
      <LabelFields labels={labels} onChange={(change) => setLabels({ ...labels, ...change })} />
      <SlotFields rule={rule} zone={zone} onChange={setRule} />
      <Check
        label={`Export what became available since the previous export, including late events, instead of the previous ${every}`}
        checked={isFeed}
        onChange={(event) => setFeed(event.currentTarget.checked)}
      />
      <ErrorMessage error={error} />
      <div class="row">
        <Button kind="primary" type="submit" aria-disabled={isBusy}>
          Create schedule
        </Button>
      </div>
    </form>
  );
}

type Schedule = AnswerOf<'/api/schedule/v1/list.json'>['schedules'][number];

const colours = { Active: 'good', Paused: 'warn', Stopped: 'bad' } as const;

function describeRule({ every, at, weekday, timezone }: Schedule): string {
  const on = weekday === undefined ? '' : ` on ${capitalize(weekday)}`;
  return `Every ${every}${on} at ${at} (${timezone})`;
}

type Run = AnswerOf<'/api/schedule/v1/runs.json'>['runs'][number];

const runColours: Readonly<Record<Run['status'], string>> = {
  'In progress': 'busy',
  'Success!': 'good',
  'Error occurred': 'bad',
  'User error occurred': 'bad',
  'Canceled by user': '',
};

function RunLine({ run }: { readonly run: Run }) {
  const { idRawExport, slot, isOnDemand, status, timestampCreated, rows, errorMessage } = run;
  return (
    <li>
      <div class="spread">
        <span>
          <a href={hrefOf(`exports/${idRawExport}`)}>{slot}</a>
          {isOnDemand && <span class="chip small">run on demand</span>}
        </span>
        <span class={`badge ${runColours[status]}`}>{status === 'Success!' ? 'Ready' : status}</span>
      </div>
      <span class="muted small">
        #{idRawExport}, {formatTime(Number(timestampCreated))}
        {rows !== undefined && `, ${formatRows(rows)}`}
      </span>
      {errorMessage !== undefined && <p class="small">{errorMessage}</p>}
    </li>
  );
}

/** Shows the newest runs of a schedule; `state` changes when they may have changed. */
function Runs({ idSchedule, state }: { readonly idSchedule: string; readonly state: unknown }) {
  const loaded = useLoaded(
    (signal) => callApi('/api/schedule/v1/runs.json', { callArguments: { idSchedule }, signal }),
    [idSchedule, state],
    ({ runs }) => (runs[0]?.status === 'In progress' ? busyMs : idleMs),
  );
  if (loaded.data === undefined) return <LoadingState of={loaded} />;
  const { runs } = loaded.data;
  if (runs.length === 0) return <p class="muted">No runs yet.</p>;
  return (
    <ul class="runs" aria-label="Last runs">
      {runs.map((run) => (
        <RunLine key={`${run.idRawExport} ${run.slot}`} run={run} />
      ))}
    </ul>
  );
}

function ScheduleCard({ schedule, onChange }: { readonly schedule: Schedule; readonly onChange: () => void }) {
  const { idSchedule, name, summary, status, reason, timestampNextSlot, lastSlot, idRawExport } = schedule;
  const { error, act } = useAction();
  const [isRemoving, setRemoving] = useState(false);
  const [areRunsShown, setRunsShown] = useState(false);
  const [asked, setAsked] = useState(0);
  const callArguments = { idSchedule };
  const change = (verb: 'pause' | 'resume' | 'delete'): void =>
    void act(() => callApi(`/api/schedule/v1/${verb}.json`, { method: 'POST', callArguments })).then(onChange);

  async function run(): Promise<void> {
    const isDone = await act(() => callApi('/api/schedule/v1/run.json', { method: 'POST', callArguments }));
    if (!isDone) return;
    setRunsShown(true);
    setAsked((before) => before + 1);
    onChange();
  }

  return (
    <li class="card stack">
      <div class="spread">
        <h2 tabIndex={-1}>{name ?? schedule.arguments['event']?.[0]}</h2>
        <span class={`badge ${colours[status]}`}>{status}</span>
      </div>
      <p>
        {describeRule(schedule)}
        {schedule.sinceVersion !== undefined && '; changes since the previous export'}
      </p>
      <p class="small">{summary}</p>
      <p class="muted small">
        {timestampNextSlot !== undefined &&
          `Next ${formatAway(Number(timestampNextSlot))}, ${formatTime(Number(timestampNextSlot))}. `}
        {lastSlot !== undefined && (
          <>
            Last: <a href={hrefOf(`exports/${idRawExport}`)}>{lastSlot}</a>.
          </>
        )}
      </p>
      {reason !== undefined && <MessageBox kind="warning">{reason}</MessageBox>}
      <ErrorMessage error={error} />
      {asked > 0 && (
        <p class="small" role="status">
          Run requested. Its export appears below within seconds.
        </p>
      )}
      <div class="row">
        {status !== 'Stopped' && (
          <Button kind="small" onClick={() => void run()}>
            Run now
          </Button>
        )}
        <Button kind="small" aria-expanded={areRunsShown} onClick={() => setRunsShown(!areRunsShown)}>
          Last runs
        </Button>
        <Button kind="small" onClick={() => change(status === 'Active' ? 'pause' : 'resume')}>
          {status === 'Active' ? 'Pause' : 'Resume'}
        </Button>
        {isRemoving && (
          <Button kind="danger small" onClick={() => change('delete')}>
            Delete schedule
          </Button>
        )}
        <Button kind="small" onClick={() => setRemoving(!isRemoving)}>
          {isRemoving ? 'Cancel' : 'Delete…'}
        </Button>
      </div>
      {areRunsShown && <Runs idSchedule={idSchedule} state={`${asked} ${idRawExport}`} />}
    </li>
  );
}

export function ScheduleList() {
  const loaded = useLoaded(
    (signal) => callApi('/api/schedule/v1/list.json', { signal }),
    [],
    () => 30_000,
  );
  const { data, error, reload } = loaded;
  const kept = useKeptFocus();
  if (data === undefined) return <LoadingState of={loaded} />;
  return (
    <section {...kept} class="stack" aria-label="Schedules">
      <ErrorMessage error={error} />
      {data.damaged !== undefined && (
        <MessageBox kind="warning">
          {data.damaged.length} more schedules cannot be read. An operator can restore them from a backup.
        </MessageBox>
      )}
      {data.schedules.length === 0 && (
        <EmptyCard title="No schedules yet">
          <p>To repeat an export every hour, day or week, open it and choose “Schedule…”.</p>
        </EmptyCard>
      )}
      <ul class="cards">
        {data.schedules.map((schedule) => (
          <ScheduleCard key={schedule.idSchedule} schedule={schedule} onChange={reload} />
        ))}
      </ul>
    </section>
  );
}
