import type { PeerInfo, StreamInfo } from '@nats-io/jetstream';
import type { Problem } from '../runtime/problems/problem.ts';

/** Time for which a replica may lack messages, as it does under load or after its server's restart, ms. */
const behindMs = 15_000;
/** Time without a sign of a server after which it counts as offline, ns. The cluster itself notices a kill late. */
const silentNs = 10e9;

/** A replica of the stream on a server of a cluster. */
export interface Replica {
  readonly server: string;
  readonly state: 'leader' | 'current' | 'behind' | 'offline';
  /** Operations of the stream that it lacks. */
  readonly lag: number;
}

/** Lists the replicas of a stream; none if the broker is a single server. */
function listReplicas({ cluster }: Pick<StreamInfo, 'cluster'>): readonly Replica[] {
  if (cluster === undefined) return [];
  const { leader, replicas = [] } = cluster;
  // The server omits what is false or 0.
  const others = replicas.map(({ name = '', current, offline, active = 0, lag = 0 }: Partial<PeerInfo>): Replica => {
    return {
      server: name,
      state: offline === true || active >= silentNs ? 'offline' : current === true ? 'current' : 'behind',
      lag,
    };
  });
  return leader === undefined || leader === '' ? others : [{ server: leader, state: 'leader', lag: 0 }, ...others];
}

function describeLate({ server, state, lag }: Replica, streamName: string): Problem {
  const lack =
    state === 'offline'
      ? `is offline: the stream ${streamName} has one copy fewer`
      : `lacks ${lag} operations of the stream ${streamName}`;
  return {
    code: 'stream_replica_behind',
    subject: server,
    message: `the server ${server} of the cluster ${lack}`,
    action:
      "Start the server, or check its disk and network. If it does not return, run 'nats server cluster peer-remove'.",
  };
}

/** Creates the watch of the replicas. `wanted`: copies that the settings name, or 0. */
export function createReplicaWatch(streamName: string, wanted: number) {
  const behindSinceMs = new Map<string, number>();
  let warnings: readonly Problem[] = [];
  return {
    warnings: () => warnings,
    see(info: StreamInfo): void {
      const nowMs = performance.now();
      const replicas = listReplicas(info);
      for (const { server, state } of replicas)
        if (state !== 'behind') behindSinceMs.delete(server);
        else if (!behindSinceMs.has(server)) behindSinceMs.set(server, nowMs);
      const isLate = ({ server, state }: Replica): boolean =>
        state === 'offline' || nowMs - (behindSinceMs.get(server) ?? nowMs) >= behindMs;
      const { num_replicas: copies } = info.config;
      const missing: Problem = {
        code: 'stream_replicas_missing',
        message: `the stream ${streamName} has ${copies} of ${wanted} copies`,
        action: 'Add servers to the cluster, then restart the service; or lower TRIBUTARY_STREAM_REPLICAS.',
      };
      warnings = [
        ...replicas.filter(isLate).map((replica) => describeLate(replica, streamName)),
        ...(copies < wanted ? [missing] : []),
      ];
    },
  };
}
