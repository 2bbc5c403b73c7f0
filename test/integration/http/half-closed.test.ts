import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { basic, createExportArea, targetOf, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { startTestIngest, testApps, type TestIngest } from '../../helpers/ingest.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { readAnswers, talk } from '../../helpers/talk.ts';
import { waitFor } from '../../helpers/wait.ts';

const statuses = async (port: number, text: string): Promise<number[]> =>
  readAnswers(await talk(port, text)).map(({ status }) => status);

describe('a half-closed client', () => {
  const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
  const [serviceDir, areaDir] = [temporaryFolder(), temporaryFolder()];
  let service: TestIngest;
  let area: RunningArea;
  let user: Credentials;
  beforeAll(async () => {
    service = await startTestIngest(serviceDir);
    const exportArea = createExportArea(areaDir);
    await exportArea.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
    user = await exportArea.addUser({});
    await writeLake(exportArea.tableDir, [
      [
        {
          event_id: 'e',
          kind: 'custom_event',
          id_app: 7,
          event_time: time,
          available_at: time,
          custom_event_name: 'n',
        },
      ],
    ]);
    area = await exportArea.start({ maxExports: 1 });
  });
  afterAll(async () => {
    await area.stop();
    await service.stop();
  });

  function login(customUserId: string): string {
    const body = JSON.stringify({ customUserId });
    return `POST /v1/login/?idApp=${testApps.web} HTTP/1.1\r\nHost: a\r\nAuthorization: ${service.tokens.web}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  }
  const stored = async (): Promise<unknown[]> => (await service.newLines()).map((line) => line['custom_user_id']);

  it('A half-closed client gets the import response once its event is stored, and one for each request on the connection', async () => {
    expect(await statuses(service.ingest.port, login('alone'))).toEqual([200]);
    expect(await statuses(service.ingest.port, login('first') + login('second') + login('third'))).toEqual([
      200, 200, 200,
    ]);
    expect(await stored()).toEqual(['alone', 'first', 'second', 'third']);
  });

  it('A client that half-closes while its event is being stored still gets the response', async () => {
    const received = (): Promise<number> => service.metric('tributary_ingest_events_received_total{kind="login"}');
    const before = await received();
    service.nats.signal('SIGSTOP');
    const socket = connect({ port: service.ingest.port, host: '127.0.0.1', allowHalfOpen: true });
    let text = '';
    socket.on('data', (data) => void (text += data.toString()));
    await once(socket, 'connect');
    socket.write(login('slow'));
    await waitFor('the event waits for the broker', async () => (await received()) > before);
    socket.end();
    service.nats.signal('SIGCONT');
    await once(socket, 'end');
    // In time or not, the response is true.
    const [answer] = readAnswers(text);
    expect([200, 500]).toContain(answer?.status);
    const lines = await stored();
    expect(answer?.status === 200 ? lines : ['slow']).toEqual(['slow']);
  });

  it('A half-closed client whose last request is incomplete gets 400, and the request is not stored', async () => {
    await service.newLines();
    expect(await statuses(service.ingest.port, login('whole').slice(0, -3))).toEqual([400]);
    expect(await stored()).toEqual([]);
  });

  it('A client that half-closes without a request is disconnected without a response', async () => {
    for (const port of [service.ingest.port, area.port]) expect(await talk(port, '')).toBe('');
  });

  it('A half-closed client gets the id, the state and the complete file of its new export', async () => {
    const call = (target: string): string =>
      `GET ${target} HTTP/1.1\r\nHost: 127.0.0.1:${area.port}\r\nAuthorization: ${basic(user)}\r\n\r\n`;
    const create =
      '/api/raw/v1/export/create.json?event=customEvents&selectors=eventId&dateFrom=2025-05-01&dateTo=2025-05-31';
    const [created] = readAnswers(await talk(area.port, call(create)));
    expect(JSON.parse(created?.body ?? '')).toEqual({ code: 200, message: 'Ok', data: { idRawExport: '1' } });
    const { files } = await area.waitForEnd(user, '1');
    const [file] = readAnswers(await talk(area.port, call(targetOf(files?.[0]?.link ?? ''))));
    expect([file?.status, file?.body]).toEqual([200, 'eventId\ne\n']);
  });
});
