import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import { Chart } from '../components/chart.tsx';
import { formatAway, formatBytes, formatCount, formatShort, formatSpan, formatTime } from '../components/format.ts';
import { Card, createTabs, LoadingState, MessageBox } from '../components/layout.tsx';
import { AppsTab } from './apps-tab.tsx';
import { AuditTab } from './audit-tab.tsx';
import { DisksCard, WarningsCard, ProcessesCard, RefusalsCard, useIsOld, useStatus } from './service-cards.tsx';
import type { Problem, Sample, Status } from './service-cards.tsx';
import { UsersTab } from './users-tab.tsx';

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const formatClock = (seconds: number): string => clock.format(seconds * 1000);
const rate = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const formatRate = (perSecond: number): string =>
  perSecond < 1000 ? rate.format(perSecond) : formatShort(Math.round(perSecond));

interface TileProps {
  readonly label: string;
  readonly value: string;
  readonly children?: ComponentChildren;
}

function Tile({ label, value, children }: TileProps) {
  return (
    <div class="tile">
      <dt>{label}</dt>
      <dd>
        <b>{value}</b>
        <span class="muted small">{children}</span>
      </dd>
    </div>
  );
}

const since = (from: string | undefined, at: string): number | undefined =>
  from === undefined ? undefined : Math.max(0, (Date.parse(at) - Date.parse(from)) / 1000);

function Tiles({ status, sample }: { readonly status: Status; readonly sample: Sample | undefined }) {
  const { lake, stream, exports, at } = status;
  const behind = since(lake.watermark, at);
  return (
    <dl class="tiles">
      <Tile label="Events per second" value={sample === undefined ? '…' : formatRate(sample.events)}>
        acknowledged
      </Tile>
      <Tile label="Rejections per second" value={sample === undefined ? '…' : formatRate(sample.refusals)}>
        requests
      </Tile>
      <Tile label="Lake lag" value={behind === undefined ? 'unknown' : formatSpan(behind)}>
        {behind === undefined ? 'no watermark yet' : 'since the watermark'}
      </Tile>
      <Tile
        label="Stream backlog"
        value={stream?.lagMessages === undefined ? 'unknown' : formatCount(stream.lagMessages)}
      >
        {stream === undefined ? 'stream not readable' : `messages; stream ${formatBytes(stream.bytes)}`}
      </Tile>
      <Tile label="Events stored" value={lake.stored === undefined ? 'unknown' : formatShort(lake.stored)}>
        {lake.files === undefined ? '' : `in ${formatCount(lake.files)} files`}
        {(lake.failed ?? 0) > 0 && `, ${formatCount(lake.failed ?? 0)} failed`}
      </Tile>
      <Tile label="Exports running" value={formatCount(exports.running)}>
        {formatCount(Math.max(0, exports.inProgress - exports.running))} waiting, {formatCount(exports.reports)} kept
      </Tile>
    </dl>
  );
}

function RateCard({ samples }: { readonly samples: readonly Sample[] }) {
  const { times, series } = useMemo(
    () => ({
      times: samples.map(({ at }) => at),
      series: [
        { label: 'events per second', values: samples.map(({ events }) => events) },
        { label: 'rejections per second', values: samples.map(({ refusals }) => refusals) },
      ],
    }),
    [samples],
  );
  return (
    <Card id="rate" title="Live rates">
      {samples.length < 2 ? (
        <p class="muted chart-space low">Collecting the first rates…</p>
      ) : (
        <Chart
          form="lines"
          height={150}
          label="Events acknowledged and requests rejected per second; the newest values are above"
          times={times}
          series={series}
          formatTime={formatClock}
        />
      )}
    </Card>
  );
}

/** Lists the problems. Not announced: their texts count seconds. */
function Problems({ problems }: { readonly problems: readonly Problem[] }) {
  return (
    <ul class="stack" aria-label="Problems">
      {problems.map(({ code, subject = '', message, action, since: begun }) => (
        <li class="message error" key={`${code} ${subject}`}>
          <p>
            <b>{message}</b>
          </p>
          <p>{action}</p>
          <p class="muted small">
            <code>{code}</code>
            {begun !== undefined && ` since ${formatTime(Date.parse(begun) / 1000)}`}
          </p>
        </li>
      ))}
    </ul>
  );
}

function ServicePart() {
  const { data, error } = useStatus();
  const isLate = useIsOld(data?.receivedMs);
  if (data === undefined) return <LoadingState of={{ data, error }} />;
  const { status, samples, receivedMs } = data;
  const isOld = error !== undefined || isLate;
  return (
    <div class={isOld ? 'stack outdated' : 'stack'}>
      {isOld && (
        <MessageBox kind="warning">
          {error?.message ?? 'The service does not respond.'} The values below are of {formatClock(receivedMs / 1000)}{' '}
          and may be outdated.
        </MessageBox>
      )}
      <div class="row" role="status">
        <span class={`badge ${isOld ? '' : status.ready ? 'good' : 'bad'}`}>
          {isOld ? 'Unknown' : status.ready ? 'Healthy' : `Problems: ${formatCount(status.problems.length)}`}
        </span>
        <span class="muted small">
          Version {status.version}
          {status.startedAt !== undefined &&
            `, started ${formatAway(Date.parse(status.startedAt) / 1000, Date.parse(status.at))}`}
        </span>
      </div>
      {status.problems.length > 0 && <Problems problems={status.problems} />}
      <Tiles status={status} sample={samples.at(-1)} />
      <RateCard samples={samples} />
      <div class="columns">
        <ProcessesCard processes={status.processes} isOld={isOld} />
        <DisksCard status={status} />
      </div>
      <div class="columns">
        <RefusalsCard status={status} />
        <WarningsCard warnings={status.warnings} />
      </div>
    </div>
  );
}

export const OperationsPage = createTabs('Operations', [
  { path: 'operations', title: 'Service', component: ServicePart },
  { path: 'operations/apps', title: 'Apps', component: AppsTab },
  { path: 'operations/users', title: 'Users', component: UsersTab },
  { path: 'operations/audit', title: 'Audit', component: AuditTab },
]);
