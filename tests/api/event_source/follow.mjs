// Prints the id, method, path and status of each request that the service at the given address has answered.
import { EventSource } from "eventsource";

const source = new EventSource(process.argv[2]);
source.onopen = () => console.log("open");
source.addEventListener("request", (event) => {
  const entry = JSON.parse(event.data);
  console.log([event.lastEventId, entry.method, entry.path, entry.answer.status].join(" "));
});
