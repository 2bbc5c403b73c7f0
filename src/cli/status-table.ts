import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import type { ProcessState } from '../runtime/processes/supervisor.ts';
import { escapeText, formatBytes, formatCount, formatDuration, formatTime, padText } from './human-output.ts';

/** The parts of the status that its table shows. Undefined: it could not be read. */
export interface StatusSummary {
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
  readonly services: readonly {
    readonly pid: number;
    readonly startedAt: string;
    readonly s2s: string | undefined;
    readonly api: string | undefined;
    readonly processes: readonly ProcessState[];
    readonly facts: Readonly<Record<string, unknown>>;
  }[];
  readonly hosts?: unknown;
  readonly stream:
    | {
        readonly messages: number;
        readonly bytes: number;
        readonly maxBytes?: number | undefined;
        readonly lagMessages: number;
      }
    | undefined;
  readonly lake:
    | {
        readonly version: number;
        readonly files: number;
        readonly youngFiles: number;
        readonly bytes: number;
        readonly rows: number;
        readonly totals: { readonly failed: number; readonly repeats: number; readonly erased: number } | undefined;
      }
    | undefined;
  readonly exports: Readonly<Record<string, number>> | undefined;
}

const unknown = 'unknown, see problems';

function describeProcesses(processes: readonly ProcessState[]): string {
  const running = processes.filter(({ state }) => state === 'running');
  const others = processes.filter(({ state }) => state !== 'running').map(({ name, state }) => `${name} ${state}`);
  const restarts = processes.reduce((sum, process) => sum + process.restarts, 0);
  return [`${running.length} running`, ...others, `${formatCount(restarts)} restarts`].join(', ');
}

/** Describes the hosts that share the buckets; whether one is alive is unknown without a running service. */
function describeHosts(hosts: unknown): string {
  const all = Array.isArray(hosts) ? hosts.map(membersOf) : [];
  const silent = all.filter(({ isAlive }) => isAlive === false).map(({ id }) => escapeText(String(id)));
  return `${all.length}${silent.length === 0 ? '' : `, silent: ${silent.join(', ')}`}`;
}

/** Describes the watermark, which the compactor reports: older events are in the lake. */
function describeWatermark(services: StatusSummary['services'], nowMs: number): string {
  const [watermark] = services.flatMap(({ facts }) => {
    const { watermark: text } = membersOf(facts['compact']);
    return typeof text === 'string' && !Number.isNaN(Date.parse(text)) ? [Date.parse(text)] : [];
  });
  if (watermark === undefined) return 'unknown: no compactor runs here';
  return `complete until ${formatTime(watermark)} (${formatDuration((nowMs - watermark) / 1000)} ago)`;
}

function describeStream(stream: StatusSummary['stream'], isRunning: boolean): string {
  if (stream === undefined) return isRunning ? unknown : '-';
  const { messages, bytes, maxBytes, lagMessages } = stream;
  const lag = lagMessages === 0 ? 'all in the lake' : `${formatCount(lagMessages)} not in the lake yet`;
  const limit = maxBytes === undefined ? '' : ` of ${formatBytes(maxBytes)}`;
  return `${formatCount(messages)} messages, ${formatBytes(bytes)}${limit}, ${lag}`;
}

function describeLake(lake: StatusSummary['lake']): string {
  if (lake === undefined) return unknown;
  const { rows, files, youngFiles, bytes, version } = lake;
  return `${formatCount(rows)} rows, ${formatCount(files)} files (${formatCount(youngFiles)} young), ${formatBytes(bytes)}, version ${version}`;
}

function describeExports(counts: StatusSummary['exports']): string {
  if (counts === undefined) return unknown;
  const parts = Object.entries(counts).map(([state, count]) => `${formatCount(count)} ${state.replaceAll('_', ' ')}`);
  return parts.length === 0 ? 'none' : parts.join(', ');
}

const count = (found: readonly Problem[]): string => (found.length === 0 ? 'none' : String(found.length));

function renderProblems(name: string, problems: readonly Problem[]): string[] {
  return problems.flatMap(({ code, message, action }) => [
    `${name} ${escapeText(`${code}: ${message}`)}`,
    `  ${escapeText(action)}`,
  ]);
}

/** Renders the status as a table of about ten lines, then each problem and warning with its action. */
export function renderStatus(status: StatusSummary, nowMs: number): string[] {
  const { services, problems, warnings, stream, lake, exports, hosts } = status;
  const isRunning = services.length > 0;
  const { failed, repeats, erased } = lake?.totals ?? { failed: 0, repeats: 0, erased: 0 };
  const rows: (readonly [string, string])[] = [
    ...services.map(
      ({ pid, startedAt }) => ['service', `running since ${formatTime(Date.parse(startedAt))}, pid ${pid}`] as const,
    ),
    ...(isRunning ? [] : [['service', "not running; start it with 'tributary start'"] as const]),
    ...services.flatMap(({ s2s, api }) => [
      ...(s2s === undefined ? [] : [['import', s2s] as const]),
      ...(api === undefined ? [] : [['export', `${api}, console ${api}/console/`] as const]),
    ]),
    ...services.map(({ processes }) => ['processes', describeProcesses(processes)] as const),
    ...(hosts === undefined ? [] : [['hosts', describeHosts(hosts)] as const]),
    ['stream', describeStream(stream, isRunning)],
    ...(isRunning ? [['freshness', describeWatermark(services, nowMs)] as const] : []),
    ['lake', describeLake(lake)],
    ['events', `${formatCount(failed)} failed, ${formatCount(repeats)} duplicates, ${formatCount(erased)} erased`],
    ['exports', describeExports(exports)],
    ['problems', `${count(problems)}; warnings: ${count(warnings)}`],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  return [
    ...rows.map(([name, text]) => `${padText(name, width)}  ${text}`),
    ...renderProblems('problem', problems),
    ...renderProblems('warning', warnings),
  ];
}
