// An OpenID provider for the tests: it signs in whoever gives a name, and writes its port to stdout.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    // A native client may come back to any port of loopback (RFC 8252), which the console of a test needs.
    clients: [{ client_id: "console", token_endpoint_auth_method: "none", application_type: "native", grant_types: ["authorization_code"],
      response_types: ["code"], redirect_uris: ["http://127.0.0.1/signed-in"] }],
    pkce: { required: () => true },
    clientBasedCORS: () => true,
    features: { devInteractions: { enabled: true } },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  });
  server.on("request", provider.callback());
  process.stdout.write(`${port}\n`);
});
