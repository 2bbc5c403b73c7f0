import { once } from 'node:events';
import { parseRefusalRecord } from '../refusals/refusal-files.ts';
import { cutText, escapeText, padText } from './human-output.ts';
import { listApps } from '../access/apps.ts';
import { parseObject } from '../client/http-client.ts';
import { parseLiveMessage, type LiveMessage } from '../live/live-source.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { AppError } from '../runtime/errors.ts';
import { withFormerNames } from '../runtime/former-names.ts';
import { createLogger } from '../runtime/logger.ts';
import { requiredRightsTodo } from '../stream/broker-errors.ts';
import { createLiveChannel, type LiveChannel } from '../stream/live-channel.ts';
import { defineDataCommand, type CommandContext, type DataContext } from './command.ts';
import { findBroker, type BrokerConnection } from './stop.ts';
import { positive } from './option-specs.ts';
import { isRecord } from '../runtime/files/checksummed-json.ts';

/** Widths of the columns on a terminal; the last column has none. */
const widths = [8, 12, 24] as const;
const gap = '  ';

/** Columns with the identity of an event; the first one present is shown. */
const subjects = ['custom_user_id', 'custom_platform_user_id', 'instance_id', 'lvid', 'sezam_user_id'];
/** Columns of every event that are not shown. */
const common = ['event_id', 'kind', 'id_app', 'event_time', 'received_at'];

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

function layOut(cells: readonly string[], columns: number): string {
  const laid = cells.map((cell, index) => {
    const width = widths[index];
    const text = escapeText(cell);
    if (width === undefined) return text;
    return padText(cutText(text, width), width);
  });
  return cutText(laid.join(gap).trimEnd(), columns);
}

const timeOf = (ms: number): string => (Number.isNaN(ms) ? '' : clock.format(ms));
const show = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

export function tailHead(columns: number): string {
  return layOut(['time', 'kind', 'subject', 'fields'], columns);
}

/** Lays out an event, a line of the stream. */
export function formatLiveEvent(line: string, columns: number): string {
  const event = parseObject(line);
  const { kind, received_at: at, custom_event_name: name, custom_event_params: params, ...others } = event;
  const subject = subjects.find((column) => (others[column] ?? '') !== '');
  const otherFields = Object.entries(others).filter(([column]) => column !== subject && !common.includes(column));
  const fields = [...(isRecord(params) ? Object.entries(params) : []), ...otherFields];
  const what = [
    ...(name === undefined ? [] : [show(name)]),
    ...fields.map(([column, value]) => `${column}=${show(value)}`),
  ];
  const whose = subject === undefined ? '' : show(others[subject]);
  return layOut([timeOf(Number(at)), show(kind ?? 'event'), whose, what.join(gap)], columns);
}

/** Lays out a rejected request, a stored line. */
export function formatLiveRefusal(line: string, columns: number): string {
  const refusal = parseRefusalRecord(line);
  if (refusal === undefined) return layOut(['', 'refused', '', line], columns);
  const { time, method, status, detail, errors, requests } = refusal;
  const hint = errors[0]?.hint === undefined ? '' : ` (${errors[0].hint})`;
  const alike = requests > 1 ? ` (${requests} requests alike)` : '';
  return layOut([timeOf(Date.parse(time)), 'REFUSED', `${method} ${status}`, `${detail}${hint}${alike}`], columns);
}

export function formatDropped(events: number, refusals: number): string {
  const parts = [
    ...(events === 0 ? [] : [`${events} more events`]),
    ...(refusals === 0 ? [] : [`${refusals} more refusals`]),
  ];
  return `${gap.repeat(2)}... ${parts.join(', ')}`;
}

/** Shorter than the lifetime of an announcement, ms. */
const announceEveryMs = 2000;

/** Shows a message: lines of JSON for a program, or laid out for a terminal of `columns`. */
function showMessage(
  { events, refusals, eventsDropped, refusalsDropped }: LiveMessage,
  columns: number | undefined,
  { print, printResult }: Pick<CommandContext, 'print' | 'printResult'>,
): void {
  const hasLeftOut = eventsDropped + refusalsDropped > 0;
  if (columns === undefined) {
    for (const line of events) print(`{"event":${line}}`);
    for (const line of refusals) print(`{"refusal":${line}}`);
    if (hasLeftOut)
      printResult(withFormerNames('tail', { dropped: { events: eventsDropped, refusals: refusalsDropped } }));
    return;
  }
  for (const line of events) print(formatLiveEvent(line, columns));
  for (const line of refusals) print(formatLiveRefusal(line, columns));
  if (hasLeftOut) print(formatDropped(eventsDropped, refusalsDropped));
}

/** Throws `broker_away` or `broker_refused` if the channel cannot be used. */
async function assertReady(channel: LiveChannel): Promise<void> {
  const hindrance = await channel.findHindrance();
  if (hindrance === 'away') throw new AppError('broker_away', 'the broker does not respond');
  if (hindrance === 'denied')
    throw new AppError('broker_refused', 'the broker denies live subjects', { hint: requiredRightsTodo });
}

const away = 'service unreachable, will retry';
const back = 'service reachable again';

/**
 * Follows an app, also across a restart of the service, which gets another broker. Errors of the start: `broker_away`,
 * `broker_refused`.
 */
async function follow(
  idApp: number,
  first: BrokerConnection,
  open: (brokerConnection: BrokerConnection) => LiveChannel,
  { config, printMessage }: DataContext,
) {
  let [brokerConnection, channel, isAway] = [first, open(first), false];
  try {
    await assertReady(channel);
  } catch (error) {
    await channel.close();
    throw error;
  }
  channel.announce([idApp]);

  async function check(signal: AbortSignal): Promise<void> {
    const now = findBroker(config) ?? brokerConnection;
    if (now.url !== brokerConnection.url || now.streamName !== brokerConnection.streamName) {
      await channel.close();
      if (signal.aborted) return;
      [brokerConnection, channel] = [now, open(now)];
    }
    const wasAway = isAway;
    isAway = (await channel.findHindrance()) !== undefined;
    if (signal.aborted) return;
    if (isAway !== wasAway) printMessage(isAway ? away : back);
    channel.announce([idApp]);
  }
  const loop = startPollLoop(check, { everyMs: announceEveryMs, pausesFirst: true, onError: () => undefined });
  return {
    async close() {
      // A running check, which waits for the broker, has no further effect.
      void loop.stop();
      await channel.close();
    },
  };
}

export const tailCommand = defineDataCommand({
  name: 'tail',
  summary: 'show events and rejected imports of an app as they arrive',
  details: [
    'Samples up to 20 events per second and import process, and counts the dropped ones.',
    'Prints lines on a terminal, and in a pipe or with --json objects with event, refusal or dropped.',
    'It reconnects after a restart of the service.',
  ],
  arguments: { APP: positive('app id') },
  examples: ['tail 7', 'tail 7 --json'],
  async run({ APP: idApp, json }, context) {
    const { config, paths, screen, print, printMessage, stop, unread } = context;
    const columns = json ? undefined : screen?.columns;
    const brokerConnection = findBroker(config);
    if (brokerConnection === undefined)
      throw new AppError('broker_away', 'no service runs on this data folder', {
        hint: "Run 'tributary start' first.",
      });
    if (!(await listApps(paths)).some((app) => app.idApp === String(idApp)))
      printMessage(`app ${idApp} does not exist; 'tributary app list' lists all apps`);
    // The state of the connection is reported by notes.
    const logger = createLogger('silent');
    function open({ url, streamName }: BrokerConnection): LiveChannel {
      const channel = createLiveChannel({ url, name: 'tributary tail', logger, streamName });
      channel.listen(idApp, (text) => {
        const message = parseLiveMessage(text);
        if (message !== undefined) showMessage(message, columns, context);
      });
      return channel;
    }
    const following = await follow(idApp, brokerConnection, open, context);
    try {
      if (columns !== undefined) {
        printMessage(`Events and rejected imports of app ${idApp}. Press Ctrl-C to stop.`);
        print(tailHead(columns));
      }
      const end = AbortSignal.any(unread === undefined ? [stop] : [stop, unread]);
      if (!end.aborted) await once(end, 'abort');
    } finally {
      await following.close();
    }
  },
});
