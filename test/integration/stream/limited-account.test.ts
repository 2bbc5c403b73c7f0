import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { jetstreamManager, type JetStreamManager } from '@nats-io/jetstream';
import { pino } from 'pino';
import { describe, expect, it, onTestFinished } from 'vitest';
import { isAppError } from '../../../src/runtime/errors.ts';
import type { Logger } from '../../../src/runtime/logger.ts';
import { settlePorts } from '../../../src/runtime/http/ports.ts';
import { openConnection, type StreamConnection } from '../../../src/stream/connection.ts';
import { openGuard } from '../../../src/stream/guard.ts';
import { openPublisher } from '../../../src/stream/publisher.ts';
import { assertMayPublish, startPublishProbe } from '../../../src/stream/publish-probe.ts';
import { createLiveChannel } from '../../../src/stream/live-channel.ts';
import { startBrokerPing } from '../../../src/stream/broker-monitor.ts';
import { testFolder } from '../../helpers/folder.ts';
import { natsBinary, silentLogger, type TestNats } from '../../helpers/nats.ts';
import { claimFor, findLost, startPublishing } from '../../helpers/owned-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

interface Account {
  readonly url: string;
  readonly operator: JetStreamManager;
  /** Connects as the service, whose user is denied some subjects. */
  readonly nats: { readonly connect: (logger?: Logger) => Promise<StreamConnection> };
  /** Denies other subjects from now on. */
  readonly deny: (denied: Denied) => Promise<void>;
}

interface Denied {
  readonly publish?: readonly string[];
  readonly subscribe?: readonly string[];
}

interface Limits {
  readonly storeBytes?: number;
  /** The service's user is of a separate account, which has no JetStream. */
  readonly apart?: boolean;
}

/** Starts a broker whose operator may do everything, and whose service may not use some subjects. */
async function startLimited(
  denied: Denied,
  { storeBytes = 268_435_456, apart = false }: Limits = {},
): Promise<Account> {
  const folder = testFolder();
  const [port] = await settlePorts('127.0.0.1', [{ port: 0, what: 'broker port' }]);
  const config = path.join(folder, 'nats.conf');
  const write = ({ publish = [], subscribe = [] }: Denied): void => {
    const permissions = `permissions: { publish: { deny: ${JSON.stringify(publish)} }, subscribe: { deny: ${JSON.stringify(subscribe)} } }`;
    const lines = [
      `listen: "127.0.0.1:${port}"`,
      `jetstream { store_dir: ${JSON.stringify(path.join(folder, 'store'))}, max_file_store: ${storeBytes}, sync_interval: always }`,
      apart
        ? 'accounts { OPERATOR { jetstream: enabled, users: [ { user: operator, password: o } ] }, SERVICE { users: [ { user: service, password: s } ] } }'
        : `authorization { users: [ { user: operator, password: o }, { user: service, password: s, ${permissions} } ] }`,
    ];
    writeFileSync(config, lines.join('\n'));
  };
  write(denied);
  const server = spawn(await natsBinary(), ['-c', config], { stdio: 'ignore' });
  onTestFinished(async () => {
    server.kill('SIGKILL');
    if (server.exitCode === null && server.signalCode === null) await once(server, 'exit');
  });
  const connect = async (user: string, logger = silentLogger): Promise<StreamConnection> => {
    const connection = await openConnection({
      url: `nats://127.0.0.1:${port}`,
      user,
      password: user.slice(0, 1),
      name: 'test',
      logger,
    });
    onTestFinished(() => connection.close());
    return connection;
  };
  await waitFor('the broker is ready', () =>
    connect('operator')
      .then((connection) => jetstreamManager(connection.nats))
      .then(
        () => true,
        () => false,
      ),
  );
  return {
    url: `nats://service:s@127.0.0.1:${port}`,
    operator: await jetstreamManager((await connect('operator')).nats),
    nats: { connect: (logger) => connect('service', logger) },
    async deny(other) {
      write(other);
      server.kill('SIGHUP');
      // for a moment it knows no user
      let probe: StreamConnection | undefined;
      await waitFor('the broker lets the service in', () =>
        connect('service').then(
          (connection) => Boolean((probe = connection)),
          () => false,
        ),
      );
      const isDenied = async (subject: string): Promise<boolean> =>
        (await probe?.nats.request(subject, '', { timeout: 500 }).then(
          () => false,
          (error: unknown) => /permission/i.test(String(error)),
        )) === true;
      for (const subject of other.publish ?? [])
        await waitFor(`${subject} is denied`, () => isDenied(subject.replace('>', 'NONE')));
    },
  };
}

describe('an account with limited rights', () => {
  it('An account that may not show what arrives live shows nothing, and its imports know of no problem', async () => {
    const live = ['tributary.*.live.>'];
    const { url, nats } = await startLimited({ publish: live, subscribe: live });
    const warnings: string[] = [];
    const logger = pino({ level: 'warn' }, { write: (line) => void warnings.push(line) });
    const channel = createLiveChannel({ url, name: 'live', logger, streamName: 'TRIBUTARY_EVENTS' });
    onTestFinished(() => channel.close());
    const heard: string[] = [];
    channel.listen(1, (text) => heard.push(text));
    channel.onAnnouncement((apps) => heard.push(String(apps)));
    expect(await channel.findHindrance()).toBe('denied');
    const imports = await nats.connect();
    const ping = startBrokerPing(imports);
    onTestFinished(() => ping.stop());
    for (let n = 0; n < 20; n += 1) {
      channel.announce([1]);
      channel.send(1, '[0,1,0]');
    }
    await waitFor('the refusals are logged', () => warnings.some((line) => line.includes('live.app.1')));
    await imports.ping(2000);
    // Each right that is missing is logged when it shows, and not with each message.
    expect([heard, ping.problems(), new Set(warnings).size]).toEqual([[], [], warnings.length]);
    expect(warnings.length).toBeLessThanOrEqual(6);
  });

  it('An account that gets no change announcements waits for a check of the settings with each group, and no group is acknowledged on unsafe ones', async () => {
    const { operator, nats } = await startLimited({ subscribe: ['$JS.EVENT.>'] });
    const folder = testFolder();
    await (await claimFor(nats as TestNats, folder)).stop();
    const connection = await nats.connect();
    const guard = await openGuard(connection, {
      streamName: 'SHARED',
      claimFile: path.join(folder, 'stream-claim.json'),
      logger: silentLogger,
    });
    onTestFinished(() => guard.stop());
    const publishing = startPublishing(openPublisher(connection, guard), 'limited');
    await waitFor('events are taken', () => publishing.acknowledged.size > 20);
    const { state } = await operator.streams.update('SHARED', { no_ack: false, discard: 'old' });
    await waitFor('the import stops', () => publishing.refusal === 'stream_shut');
    await publishing.stop();
    expect(guard.problems()).toMatchObject([{ message: expect.stringContaining('discard is ') as string }]);
    expect(await findLost(operator, 'SHARED', publishing, state.last_seq)).toEqual([]);
  });

  it("An account that cannot restore a changed stream causes a problem that names the setting and the broker's reply, and is resolved with its cause", async () => {
    const { operator, nats, deny } = await startLimited({});
    const folder = testFolder();
    const owner = await claimFor(nats as TestNats, folder);
    await deny({ publish: ['$JS.API.STREAM.UPDATE.>'] });
    await operator.streams.update('SHARED', { max_age: 3_600_000_000_000 });
    await waitFor('what the broker says', () =>
      /The broker says: .*permission/i.test(owner.problems()[0]?.action ?? ''),
    );
    expect(owner.problems()).toMatchObject([
      { message: expect.stringContaining('max_age is 3600000000000, not 0') as string },
    ]);
    await operator.streams.update('SHARED', { max_age: 0 });
    await waitFor('the end of the problem', () => owner.problems().length === 0);
    await owner.stop();
    await expect(claimFor(nats as TestNats, folder)).rejects.toMatchObject({
      code: 'broker_refused',
      message: expect.stringMatching(
        /^claim the stream SHARED: the broker denies it: Permissions Violation for Publish to "\$JS\.API\.STREAM\.UPDATE\.SHARED"/,
      ) as string,
    });
  });

  it('An account without the API of JetStream makes a start report the words of the broker and the rights that the user needs', async () => {
    const { nats } = await startLimited({ publish: ['$JS.API.>'] });
    await expect(claimFor(nats as TestNats, testFolder())).rejects.toMatchObject({
      code: 'broker_refused',
      message: expect.stringMatching(/Permissions Violation for Publish to "\$JS\.API\./) as string,
      hint: expect.stringContaining('$JS.API.> and tributary.>') as string,
    });
  });

  it('An account without JetStream makes a start report it', async () => {
    const { nats } = await startLimited({}, { apart: true });
    await expect(claimFor(nats as TestNats, testFolder())).rejects.toMatchObject({
      message: expect.stringMatching(/JetStream/) as string,
      hint: expect.stringContaining('JetStream') as string,
    });
    await expect(claimFor(nats as TestNats, testFolder())).rejects.not.toMatchObject({ code: 'broker_away' });
  });

  it('An account with too little storage makes a start report the shortage and the setting, not a full stream', async () => {
    const { nats } = await startLimited({}, { storeBytes: 1_048_576 });
    await expect(claimFor(nats as TestNats, testFolder())).rejects.toMatchObject({
      code: 'broker_refused',
      message: expect.stringMatching(/storage is full: insufficient storage resources available/) as string,
      hint: expect.stringContaining('TRIBUTARY_STREAM_MAX_BYTES') as string,
    });
  });

  it('An account that may not publish events is reported without a client, at the start and while it runs, until the right is granted', async () => {
    const { operator, nats, deny } = await startLimited({});
    const folder = testFolder();
    const stream = { streamName: 'SHARED', claimFile: path.join(folder, 'stream-claim.json') };
    await (await claimFor(nats as TestNats, folder)).stop();
    const connection = await nats.connect();
    await assertMayPublish(connection, stream);
    const ping = startBrokerPing(connection);
    const probe = startPublishProbe(connection, stream, { isPublishing: () => false });
    onTestFinished(() => Promise.all([ping.stop(), probe.stop()]).then(() => undefined));
    expect(ping.problems()).toEqual([]);

    await deny({ publish: ['tributary.>'] });
    const guard = await openGuard(await nats.connect(), { ...stream, logger: silentLogger });
    onTestFinished(() => guard.stop());
    let told: unknown;
    await waitFor('a start is refused', () =>
      assertMayPublish(connection, stream).then(
        () => false,
        (error: unknown) => ((told = error), true),
      ),
    );
    expect(told).toMatchObject({
      code: 'broker_refused',
      message: expect.stringContaining('Permissions Violation for Publish to "tributary.SHARED.events.') as string,
    });
    await waitFor('a publish is refused', () =>
      openPublisher(connection, guard)
        .publish(Buffer.from('x'), 1000)
        .then(
          () => false,
          (error: unknown) => isAppError(error, 'broker_refused'),
        ),
    );
    expect(ping.problems()).toMatchObject([
      {
        message: expect.stringContaining('the broker denies an operation: Permissions Violation') as string,
        action: expect.stringContaining('tributary.>') as string,
      },
    ]);

    await deny({});
    await waitFor('events are taken', () =>
      openPublisher(connection, guard)
        .publish(Buffer.from('x'), 1000)
        .then(
          () => true,
          () => false,
        ),
    );
    // The probes themselves are in no stream.
    expect((await operator.streams.info('SHARED')).state.messages).toBe(1);
  });

  it('An account that may not receive answers any more stores what it publishes, reports the outcome as unknown and never as refused, and one line of the log gives the reason', async () => {
    const { operator, nats, deny } = await startLimited({});
    const folder = testFolder();
    await (await claimFor(nats as TestNats, folder)).stop();
    const lines: string[] = [];
    const connection = await nats.connect(pino({ level: 'warn' }, { write: (line) => void lines.push(line) }));
    const guard = await openGuard(connection, {
      streamName: 'SHARED',
      claimFile: path.join(folder, 'stream-claim.json'),
      logger: silentLogger,
    });
    onTestFinished(() => guard.stop());
    const publisher = openPublisher(connection, guard);
    await publisher.publish(Buffer.from('x'), 1000);
    const stored = async (): Promise<number> => (await operator.streams.info('SHARED')).state.messages;

    await deny({ subscribe: ['_INBOX.>'] });
    const codes = new Set<string>();
    await waitFor('a message is stored without an answer', async () => {
      const before = await stored();
      await publisher
        .publish(Buffer.from('x'), 1000)
        .catch((error: unknown) => void (isAppError(error) && codes.add(error.code)));
      return codes.has('publish_unknown') && (await stored()) > before;
    });
    expect([...codes].filter((code) => !['publish_unknown', 'broker_away'].includes(code))).toEqual([]);
    for (let n = 0; n < 5; n += 1) await publisher.publish(Buffer.from('x'), 1000).catch(() => undefined);
    expect(lines.filter((line) => line.includes('_INBOX'))).toHaveLength(1);
  });

  it('The rights of an account are not tested while a reply is awaited on the same connection, since a refusal would be taken for that reply', async () => {
    const { operator, nats } = await startLimited({});
    const folder = testFolder();
    await (await claimFor(nats as TestNats, folder)).stop();
    const connection = await nats.connect();
    const subject = String((await operator.streams.info('SHARED')).config.subjects[0]);
    const tries: string[] = [];
    const witness = await nats.connect();
    witness.nats.subscribe(subject, { callback: (_error, message) => void tries.push(message.subject) });
    await witness.ping(1000);
    let asked = 0;
    let isPublishing = true;
    const probe = startPublishProbe(
      connection,
      { streamName: 'SHARED', claimFile: path.join(folder, 'stream-claim.json') },
      { isPublishing: () => ((asked += 1), isPublishing), everyMs: 10 },
    );
    onTestFinished(() => probe.stop());
    await waitFor('the probe has run several times', () => asked > 5);
    await Promise.all([connection.ping(1000), witness.ping(1000)]);
    expect(tries).toEqual([]);
    isPublishing = false;
    await waitFor('a probe is sent', () => tries.length > 0);
  });
});
