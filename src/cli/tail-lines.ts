import { parseRecord } from '../refusals/refusal-record.ts';
import { cutText, escapeText, isFields, widthOf } from './answer-values.ts';

/** What `tributary tail` shows on a terminal: a line for each event and refusal, in columns that stay where they are. */
const widths = [8, 12, 24] as const;
const gap = '  ';

/** Columns of an event that say whom it is about; the first one that is there is shown. */
const subjects = ['custom_user_id', 'custom_platform_user_id', 'instance_id', 'lvid', 'sezam_user_id'];
/** What every event has, and says nothing to who watches. */
const common = ['event_id', 'kind', 'id_app', 'event_time', 'received_at'];

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

function layOut(cells: readonly string[], columns: number): string {
  const laid = cells.map((cell, index) => {
    const width = widths[index];
    const text = escapeText(cell);
    if (width === undefined) return text;
    const cut = cutText(text, width);
    return `${cut}${' '.repeat(width - widthOf(cut))}`;
  });
  return cutText(laid.join(gap).trimEnd(), columns);
}

const timeOf = (ms: number): string => (Number.isNaN(ms) ? '' : clock.format(ms));
const show = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

/** The names above the columns. */
export function tailHead(columns: number): string {
  return layOut(['time', 'kind', 'whose', 'what'], columns);
}

function parseFields(line: string): Readonly<Record<string, unknown>> {
  try {
    const fields: unknown = JSON.parse(line);
    return isFields(fields) ? fields : {};
  } catch {
    return {};
  }
}

/** Lays an event out, a line of JSON as it goes through the stream. */
export function showEvent(line: string, columns: number): string {
  const event = parseFields(line);
  const { kind, received_at: at, custom_event_name: name, custom_event_params: params, ...others } = event;
  const subject = subjects.find((column) => ![undefined, null, ''].includes(others[column] as string));
  const rest = Object.entries(others).filter(([column]) => column !== subject && !common.includes(column));
  const fields = [...(isFields(params) ? Object.entries(params) : []), ...rest];
  const what = [
    ...(name === undefined ? [] : [show(name)]),
    ...fields.map(([column, value]) => `${column}=${show(value)}`),
  ];
  const whose = subject === undefined ? '' : show(others[subject]);
  return layOut([timeOf(Number(at)), show(kind ?? 'event'), whose, what.join(gap)], columns);
}

/** Lays a refusal out, a line of JSON as it is kept. */
export function showRefusal(line: string, columns: number): string {
  const refusal = parseRecord(line);
  if (refusal === undefined) return layOut(['', 'refused', '', line], columns);
  const { time, method, status, detail, faults, requests } = refusal;
  const hint = faults[0]?.hint === undefined ? '' : ` (${faults[0].hint})`;
  const alike = requests > 1 ? ` (${requests} requests alike)` : '';
  return layOut([timeOf(Date.parse(time)), 'REFUSED', `${method} ${status}`, `${detail}${hint}${alike}`], columns);
}

/** Says how many were not shown. */
export function showLeftOut(events: number, refusals: number): string {
  const parts = [
    ...(events === 0 ? [] : [`${events} more events`]),
    ...(refusals === 0 ? [] : [`${refusals} more refusals`]),
  ];
  return `${gap.repeat(2)}... ${parts.join(', ')}`;
}
