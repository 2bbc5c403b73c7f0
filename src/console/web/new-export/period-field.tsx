import { newestDays } from '../components/activity.ts';
import { Button, Input, Segments, Select } from '../components/controls.tsx';
import { formatCount, formatDate, formatSpan, formatTime } from '../components/format.ts';
import { Card } from '../components/layout.tsx';
import { addDays, isKnownZone, ownZone, todayIn, wallTimeOf } from '../components/zones.ts';
import { changeDraft, type Dictionary, type Draft, type DraftProps } from './draft.ts';
import { momentsOf } from './export-arguments.ts';

/** Days of a new draft. */
export const usualDays = 7;

const monthOf = (date: string): string => `${date.slice(0, 7)}-01`;

/** First and last day of common periods. */
const presets: readonly (readonly [title: string, span: (today: string) => readonly [string, string]])[] = [
  ['Today', (today) => [today, today]],
  ['Yesterday', (today) => [addDays(today, -1), addDays(today, -1)]],
  ['Last 7 days', (today) => [addDays(today, -6), today]],
  ['Last 30 days', (today) => [addDays(today, -29), today]],
  ['This month', (today) => [monthOf(today), today]],
  ['Last month', (today) => [monthOf(addDays(monthOf(today), -1)), addDays(monthOf(today), -1)]],
];

/** Lists time zones by region, the most likely first. */
function ZoneOptions({ dictionary }: { readonly dictionary: Dictionary }) {
  const likely = [...new Set([ownZone, dictionary.timezone, 'UTC'])].filter((zone) =>
    dictionary.timezones.includes(zone),
  );
  const groups = Map.groupBy(dictionary.timezones, (zone) =>
    zone.includes('/') ? (zone.split('/')[0] ?? '') : 'Other',
  );
  return (
    <>
      <optgroup label="Suggested">
        {likely.map((zone) => (
          <option key={zone} value={zone}>
            {zone}
            {zone === ownZone ? ' (yours)' : ''}
          </option>
        ))}
      </optgroup>
      {[...groups].map(([group, zones]) => (
        <optgroup key={group} label={group}>
          {zones
            .filter((zone) => !likely.includes(zone))
            .map((zone) => (
              <option key={zone}>{zone}</option>
            ))}
        </optgroup>
      ))}
    </>
  );
}

/** Describes the length and the ends of a valid period. */
function describeLength(draft: Draft): string {
  const { kind, from, to } = draft.period;
  if (draft.others['sinceVersion'] !== undefined) return 'Incremental export since a version; it has no period.';
  if (kind === 'days') {
    const days = (Date.parse(to) - Date.parse(from)) / 86_400_000 + 1;
    return `${days === 1 ? '1 day' : `${formatCount(days)} days`}, both ends included, in ${draft.timezone}.`;
  }
  const moments = momentsOf(draft);
  const [first, last] = [moments.from, moments.to].map((at) => formatTime(at, draft.timezone, '2-digit'));
  return `${formatSpan(moments.to - moments.from + 1)}, from ${first} to ${last}, both seconds included.`;
}

interface PresetsProps {
  readonly period: Draft['period'];
  readonly readToday: () => string;
  /** The days up to the newest event, if it is older than the presets. */
  readonly newest: { readonly from: string; readonly to: string } | undefined;
}

function Presets({ period, readToday, newest }: PresetsProps) {
  return (
    <div class="chips" role="group" aria-label="Presets">
      {newest !== undefined && (
        <button
          type="button"
          class="chip"
          aria-pressed={period.from === newest.from && period.to === newest.to}
          onClick={() => changeDraft({ period: { kind: 'days', ...newest } })}
        >
          Newest days
        </button>
      )}
      {presets.map(([title, span]) => {
        const [first, last] = span(readToday());
        const isChosen = period.from === first && period.to === last;
        // Recomputed: the page may be open past midnight.
        const choose = (): void => {
          const [from, to] = span(readToday());
          changeDraft({ period: { kind: 'days', from, to } });
        };
        return (
          <button key={title} type="button" class="chip" aria-pressed={isChosen} onClick={choose}>
            {title}
          </button>
        );
      })}
    </div>
  );
}

const kinds = [
  ['days', 'Dates'],
  ['moments', 'Date and time'],
] as const;
const ends = [
  ['from', 'First day', 'First second'],
  ['to', 'Last day', 'Last second'],
] as const;

/** States the day of the newest event, and leads to it if the period has only later days. */
function NewestEvent({
  lastDate,
  period,
  newest,
}: { readonly lastDate: string } & Pick<PresetsProps, 'period' | 'newest'>) {
  return (
    <p class="message info spread" role="status">
      <span>Newest event: {formatDate(lastDate)}.</span>
      {newest !== undefined && period.from.slice(0, 10) > newest.to && (
        <Button kind="small" onClick={() => changeDraft({ period: { kind: 'days', ...newest } })}>
          Show these days
        </Button>
      )}
    </p>
  );
}

interface PeriodProps extends DraftProps {
  /** UTC date of the newest row; undefined if unknown. */
  readonly lastDate: string | undefined;
}

export function PeriodField({ draft, dictionary, lastDate, problem }: PeriodProps) {
  const { period, timezone } = draft;
  const clockZone = isKnownZone(timezone) ? timezone : 'UTC';
  const isDays = period.kind === 'days';
  const isOld = lastDate !== undefined && lastDate < addDays(todayIn(clockZone), 1 - usualDays);
  const newest = isOld ? newestDays(timezone, lastDate, usualDays) : undefined;
  const { exact: _, ...shown } = period;
  const change = (changed: Partial<Draft['period']>): void => changeDraft({ period: { ...shown, ...changed } });
  const toKind = (kind: Draft['period']['kind']): void => {
    const [from, to] = [period.from.slice(0, 10), period.to.slice(0, 10)];
    if (kind === 'days') return change({ kind, from, to });
    // Future times are invalid.
    const [end, now] = [`${to}T23:59:59`, wallTimeOf(clockZone, Date.now() / 1000)];
    change({ kind, from: `${from}T00:00:00`, to: end < now ? end : now });
  };

  return (
    <Card
      id="period-title"
      title="Period"
      beside={
        <Segments legend="Period format" name="period-kind" choices={kinds} value={period.kind} onChoose={toKind} />
      }
    >
      {isOld && <NewestEvent lastDate={lastDate} period={period} newest={newest} />}
      {isDays && <Presets period={period} readToday={() => todayIn(clockZone)} newest={newest} />}
      <div class="columns-3">
        {ends.map(([end, day, second]) => (
          <Input
            key={end}
            label={isDays ? day : second}
            type={isDays ? 'date' : 'datetime-local'}
            step={isDays ? undefined : 1}
            max={isDays ? todayIn(clockZone) : undefined}
            required
            value={period[end]}
            aria-invalid={problem !== undefined}
            aria-describedby="period-note"
            onInput={(event) => change({ [end]: event.currentTarget.value })}
          />
        ))}
        <Select
          label="Time zone"
          value={timezone}
          onChange={(event) => changeDraft({ timezone: event.currentTarget.value, period: shown })}
        >
          <ZoneOptions dictionary={dictionary} />
        </Select>
      </div>
      <p id="period-note" class={problem === undefined ? 'muted small' : 'problem'}>
        {problem ?? describeLength(draft)}
      </p>
    </Card>
  );
}
