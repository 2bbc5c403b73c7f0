import { useState } from 'preact/hooks';
import { hrefOf, navigate } from '../shell/browser.ts';
import { callApi, type AnswerOf } from '../shell/client.ts';
import type { ExportRequestArguments } from '../new-export/export-arguments.ts';
import { Button, Check, Input, Select } from '../components/controls.tsx';
import { formatAway, formatTime } from '../components/format.ts';
import { EmptyCard, ErrorMessage, LoadingState, MessageBox, useKeptFocus } from '../components/layout.tsx';
import { useAction, useLoaded } from '../components/load.ts';

const frequencies = ['hour', 'day', 'week'] as const;
const weekdays = ['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday'];
/** Arguments that a schedule sets itself. */
const setBySchedule = /^(date|ts|availabilityTs)(From|To)$|^(asOf|sinceVersion)$/;

/** Creates a schedule from an export's arguments. */
export function ScheduleForm({ ordered }: { readonly ordered: ExportRequestArguments }) {
  const [every, setEvery] = useState<string>('day');
  const [at, setAt] = useState('04:00');
  const [weekday, setWeekday] = useState('monday');
  const [isFeed, setFeed] = useState(false);
  const { isBusy, error, act } = useAction();
  const zone = String(ordered['timezone']);

  async function create(event: Event): Promise<void> {
    event.preventDefault();
    const others = Object.entries(ordered).filter(([name]) => !setBySchedule.test(name));
    const callArguments = {
      ...Object.fromEntries(others),
      selectors: [ordered['selectors'] ?? []].flat().join(','),
      every,
      at: every === 'hour' ? at.slice(-3) : at,
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
      <div class="columns-3">
        <Select
          label="Every"
          choices={frequencies}
          value={every}
          onChange={(event) => setEvery(event.currentTarget.value)}
        />
        {every === 'week' && (
          <Select
            label="On"
            choices={weekdays}
            value={weekday}
            onChange={(event) => setWeekday(event.currentTarget.value)}
          />
        )}
        <Input
          label={every === 'hour' ? 'Minute of the hour' : `Time (${zone})`}
          type="time"
          required
          value={at}
          onInput={(event) => setAt(event.currentTarget.value)}
        />
      </div>
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
  const on = weekday === undefined ? '' : ` on ${weekday}`;
  return `Every ${every}${on} at ${at} (${timezone})`;
}

function ScheduleCard({ schedule, onChange }: { readonly schedule: Schedule; readonly onChange: () => void }) {
  const { idSchedule, status, reason, arguments: exportArguments, timestampNextSlot, lastSlot, idRawExport } = schedule;
  const { error, act } = useAction();
  const [isRemoving, setRemoving] = useState(false);
  const change = (verb: 'pause' | 'resume' | 'delete'): void =>
    void act(() => callApi(`/api/schedule/v1/${verb}.json`, { method: 'POST', callArguments: { idSchedule } })).then(
      onChange,
    );
  return (
    <li class="card stack">
      <div class="spread">
        <h2 tabIndex={-1}>{exportArguments['event']?.[0]}</h2>
        <span class={`badge ${colours[status]}`}>{status}</span>
      </div>
      <p>
        {describeRule(schedule)}
        {schedule.sinceVersion !== undefined && '; changes since the previous export'}
      </p>
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
      <div class="row">
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
