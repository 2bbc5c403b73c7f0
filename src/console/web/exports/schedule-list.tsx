import { useState } from 'preact/hooks';
import { callApi, type AnswerOf, type ApiError } from '../frame/client.ts';
import { hrefOf } from '../frame/router.ts';
import { formatAway, formatTime } from '../parts/format.ts';
import { useKeptFocus } from '../parts/kept-focus.ts';
import { toApiError, useLoaded } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';

type Schedule = AnswerOf<'/api/schedule/v1/list.json'>['schedules'][number];

const colours = { Active: 'good', Paused: 'warn', Stopped: 'bad' } as const;

function describeRule({ every, at, weekday, timezone }: Schedule): string {
  const on = weekday === undefined ? '' : ` on ${weekday}`;
  return `Every ${every}${on} at ${at}, by the clocks of ${timezone}`;
}

function ScheduleCard({ schedule, onChange }: { readonly schedule: Schedule; readonly onChange: () => void }) {
  const { idSchedule, status, reason, arguments: given, timestampNextSlot, lastSlot, idRawExport } = schedule;
  const [error, setError] = useState<ApiError>();
  const [isRemoving, setRemoving] = useState(false);
  const act = (verb: 'pause' | 'resume' | 'delete'): void => {
    setError(undefined);
    callApi(`/api/schedule/v1/${verb}.json`, { method: 'POST', given: { idSchedule } })
      .catch((caught: unknown) => setError(toApiError(caught)))
      .finally(onChange);
  };
  return (
    <li class="card stack">
      <div class="spread">
        <h2 tabIndex={-1}>{given['event']?.[0]}</h2>
        <span class={`badge ${colours[status]}`}>{status}</span>
      </div>
      <p>
        {describeRule(schedule)}
        {schedule.sinceVersion !== undefined && '; everything that came since the one before'}
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
      {reason !== undefined && <Message kind="warning">{reason}</Message>}
      {error !== undefined && <Message kind="error">{error.message}</Message>}
      <div class="row">
        {status === 'Active' ? (
          <button type="button" class="button small" onClick={() => act('pause')}>
            Pause
          </button>
        ) : (
          <button type="button" class="button small" onClick={() => act('resume')}>
            Resume
          </button>
        )}
        {isRemoving ? (
          <>
            <button type="button" class="button danger small" onClick={() => act('delete')}>
              Remove it for good
            </button>
            <button type="button" class="button small" onClick={() => setRemoving(false)}>
              Keep it
            </button>
          </>
        ) : (
          <button type="button" class="button small" onClick={() => setRemoving(true)}>
            Remove…
          </button>
        )}
      </div>
    </li>
  );
}

/** The schedules of the account. */
export function ScheduleList() {
  const { data, error, reload } = useLoaded(
    (signal) => callApi('/api/schedule/v1/list.json', { signal }),
    [],
    () => 30_000,
  );
  const kept = useKeptFocus();
  if (data === undefined)
    return error === undefined ? <p class="muted">Loading…</p> : <Message kind="error">{error.message}</Message>;
  return (
    <section {...kept} class="stack" aria-label="Schedules">
      {error !== undefined && <Message kind="error">{error.message}</Message>}
      {data.damaged !== undefined && (
        <Message kind="warning">
          {data.damaged.length} more cannot be read. The operator of the service can restore them from a backup.
        </Message>
      )}
      {data.schedules.length === 0 && (
        <div class="card empty">
          <h2 tabIndex={-1}>No schedules yet</h2>
          <p>Open an export and choose “Make a schedule…”: the same is then made every hour, day or week.</p>
        </div>
      )}
      <ul class="cards">
        {data.schedules.map((schedule) => (
          <ScheduleCard key={schedule.idSchedule} schedule={schedule} onChange={reload} />
        ))}
      </ul>
    </section>
  );
}
